// tuning.hpp: the fastest is chosen, once, and remembered in the file.
#include "part3_flash_cuda/tuning.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>

#include "common/all_passes.hpp"
#include "harness/cases/attention_case.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"

using namespace flash;
using harness::ContainsSubstring;

namespace {

const std::vector<FlashForwardConfig> kConfigs{{64, 128, 64, 4}, {64, 128, 32, 4}, {64, 64, 32, 2}};
const TuningKey kKey{.gpu = "GPU of a test",
                     .dtype = "float32",
                     .head_dim = 64,
                     .heads = 8,
                     .length = 1024,
                     .causal = true};

// A folder that goes with the test.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "flash-tuning-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

// A variable of the environment, as long as this lives.
struct Variable {
  const char* name;
  std::optional<std::string> before;
  Variable(const char* called, const std::string& value) : name(called) {
    if (const char* const old = std::getenv(name)) before = old;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { before ? setenv(name, before->c_str(), 1) : unsetenv(name); }
  Variable(const Variable&) = delete;
};

std::string content(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

double second_is_fastest(const FlashForwardConfig& config) { return config == kConfigs[1] ? 1 : 2; }
double nobody_asks(const FlashForwardConfig& config) {
  FAIL("timed again: " + to_string(config));
  return 0;
}

const FlashForwardCudaFunctions<float>& task() {
  return all_passes().tasks.library<FlashForwardCudaTask>()->of<float>();
}

struct Call : harness::ForwardCall<float> {
  Call() : harness::ForwardCall<float>({.shape = {1, 1, 70, 70, 64}}, 1) {}

  // What `run` makes of the pass.
  template <class Run>
  Tensor<float, 4> out_of(Run run) {
    run(tensors.pass());
    tensors.copy_back();
    return packed(tensors.out.view());
  }
};

}  // namespace

TEST_CASE("the fastest configuration is chosen, and timed once") {
  const Folder folder;
  const auto file = folder.path / "new" / "tuning.txt";
  int calls = 0;
  ForwardTuner tuner(file);
  const auto counted = [&](const FlashForwardConfig& config) {
    return ++calls, second_is_fastest(config);
  };
  CHECK(tuner.choose(kKey, kConfigs, counted) == kConfigs[1]);
  CHECK(calls == 3);
  CHECK(tuner.choose(kKey, kConfigs, nobody_asks) == kConfigs[1]);
  CHECK(ForwardTuner(file).choose(kKey, kConfigs, nobody_asks) == kConfigs[1]);
  CHECK(content(file) == "v1 float32 64 8 1024 causal 64 128 32 4 GPU of a test\n");
}

TEST_CASE("a choice is for its GPU, type, head_dim, heads, length and mask alone") {
  const Folder folder;
  ForwardTuner tuner(folder.path / "tuning.txt");
  tuner.choose(kKey, kConfigs, second_is_fastest);
  int calls = 0;
  const auto counted = [&](const FlashForwardConfig&) { return static_cast<double>(++calls); };
  std::vector<TuningKey> others(6, kKey);
  others[0].gpu = "another";
  others[1].dtype = "float16";
  others[2].head_dim = 63;
  others[3].heads = 4;
  others[4].length = 2048;
  others[5].causal = false;
  for (const TuningKey& other : others) {
    calls = 0;
    CHECK(tuner.choose(other, kConfigs, counted) == kConfigs[0]);
    CHECK(calls == 3);
  }
}

TEST_CASE("a line that is no choice is dropped, and one that is not compiled any more made again") {
  const Folder folder;
  const auto file = folder.path / "tuning.txt";
  std::ofstream(file) << "v2 of a later version\nv1 float32 64 8 1024 causal 64 96 96 3 GPU of a "
                         "test\nv1 float32 64\n";
  CHECK(ForwardTuner(file).choose(kKey, kConfigs, second_is_fastest) == kConfigs[1]);
  CHECK(content(file) == "v1 float32 64 8 1024 causal 64 128 32 4 GPU of a test\n");
}

TEST_CASE("a file that cannot be written is no error") {
  const Folder folder;
  std::ofstream(folder.path / "a file");
  ForwardTuner tuner(folder.path / "a file" / "tuning.txt");
  CHECK(tuner.choose(kKey, kConfigs, second_is_fastest) == kConfigs[1]);
  CHECK(tuner.choose(kKey, kConfigs, nobody_asks) == kConfigs[1]);
}

TEST_CASE("without memory to time them the first is taken, as long as the process lives") {
  const Folder folder;
  const auto file = folder.path / "tuning.txt";
  ForwardTuner tuner(file);
  CHECK(tuner.choose(kKey, kConfigs, [](const FlashForwardConfig& config) -> double {
    if (config == kConfigs[2]) throw OutOfMemory("no memory");
    return second_is_fastest(config);
  }) == kConfigs[0]);
  CHECK(tuner.choose(kKey, kConfigs, nobody_asks) == kConfigs[0]);
  CHECK(!std::filesystem::exists(file));
}

TEST_CASE("heads and lengths are tuned in classes") {
  CHECK(tuning_heads({1, 1, 1, 1, 1}) == 1);
  CHECK(tuning_heads({3, 1, 1, 1, 1}) == 4);
  CHECK(tuning_heads({2, 4, 1, 1, 1}) == 8);
  CHECK(tuning_heads({100, 100, 1, 1, 1}) == 64);
  CHECK(tuning_length({1, 1, 1, 1, 1}) == 128);
  CHECK(tuning_length({1, 1, 128, 3, 1}) == 128);
  CHECK(tuning_length({1, 1, 129, 3, 1}) == 256);
  CHECK(tuning_length({1, 1, 3, 16384, 1}) == 16384);
}

TEST_CASE("a forced configuration is taken, and one that is not compiled is refused") {
  if (harness::skipped_without_gpu()) return;
  Call call;
  const auto forced = [&](const char* name) {
    const Variable variable("FLASH_FORWARD_CONFIG", name);
    return call.out_of([](const auto& pass) { flash_attention_forward_tuned_cuda(task(), pass); });
  };
  const auto asked_for = [&](const FlashForwardConfig& config) {
    return call.out_of(
        [&](const auto& pass) { task().flash_attention_forward_cuda(pass, config); });
  };
  const auto same = [](const Tensor<float, 4>& a, const Tensor<float, 4>& b) {
    return std::equal(a.data(), a.data() + a.size(), b.data());
  };
  // Their sums have another order, and so other last bits.
  const auto few_keys = asked_for({64, 64, 32, 2}), many_keys = asked_for({64, 128, 64, 4});
  REQUIRE(!same(few_keys, many_keys));
  CHECK(same(forced("64x32x2"), few_keys));
  CHECK(same(forced("128x64x4"), many_keys));
  CHECK_THROWS_WITH(forced("7x7x7"),
                    ContainsSubstring("FLASH_FORWARD_CONFIG is '7x7x7'; it must be one of: "));
}

TEST_CASE("the tuned forward pass is right, the first time and the second") {
  if (harness::skipped_without_gpu()) return;
  const Folder folder;
  const Variable variable("FLASH_TUNING_FILE", (folder.path / "tuning.txt").string());
  for (int time = 0; time < 2; ++time) {
    Call call;
    flash_attention_forward_tuned_cuda(task(), call.tensors.pass());
    CHECK(call.verdict().text == "");
  }
  CHECK((device::is_emulated() ||
         content(folder.path / "tuning.txt").find("v1 float32 64 1 128 all") == 0));
}
