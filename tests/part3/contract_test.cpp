// What the functions of part 3's contract refuse, and how they say it; which configurations there
// are.
#include <algorithm>
#include <limits>

#include "common/all_passes.hpp"
#include "harness/cases/attention_case.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"

using namespace flash;
using flash::harness::ContainsSubstring;

namespace {

template <class T>
const FlashForwardCudaFunctions<T>& task() {
  return all_passes().tasks.library<FlashForwardCudaTask>()->of<T>();
}

template <class T>
struct Call : harness::ForwardCall<T> {
  explicit Call(const AttentionShape& shape) : harness::ForwardCall<T>({.shape = shape}, 1) {}

  void run(const AttentionOptions& options = {},
           const std::optional<FlashForwardConfig>& config = std::nullopt) const {
    AttentionForward<T> pass = this->tensors.pass();
    pass.options = options;
    task<T>().flash_attention_forward_cuda(pass, config);
  }
};

template <class T>
void check_configurations() {
  for (const Index head_dim : {1, 32, 33, 64, 128, 129, 256, 257, 1024}) {
    const auto configs = task<T>().flash_attention_forward_configs(head_dim);
    CAPTURE(head_dim);
    REQUIRE(!configs.empty());
    for (const FlashForwardConfig& config : configs) {
      CHECK(config.head_dim == configs.front().head_dim);
      CHECK((config.head_dim <= 32 || config.head_dim < 2 * head_dim));
    }
  }
  CHECK_THROWS_WITH(task<T>().flash_attention_forward_configs(0),
                    "head_dim is 0; it must be at least 1");
  CHECK_THROWS_AS(task<T>().flash_attention_forward_configs(1025), Unsupported);
}

}  // namespace

TEST_CASE("each configuration is listed for the heads that it is made for") {
  if (harness::skipped_without_gpu()) return;
  check_configurations<float>();
  check_configurations<Half>();
  check_configurations<BFloat16>();
}

TEST_CASE("shapes that do not fit are named") {
  if (harness::skipped_without_gpu()) return;
  const Call<float> right({1, 2, 3, 5, 4}), other({1, 2, 5, 3, 4});
  CHECK_NOTHROW(right.run());
  device::synchronize();
  const auto refusal = [&](auto change, const char* text) {
    AttentionForward<float> pass = right.tensors.pass();
    change(pass);
    CHECK_THROWS_WITH(task<float>().flash_attention_forward_cuda(pass, {}), text);
  };
  const auto &x = right.tensors, &y = other.tensors;
  refusal([&](auto& pass) { pass.v = x.q.in_call(); },
          "v has shape (1, 2, 3, 4); it must be (1, 2, 5, 4)");
  refusal([&](auto& pass) { pass.out = x.k.in_call(); },
          "out has shape (1, 2, 5, 4); it must be (1, 2, 3, 4)");
  refusal([&](auto& pass) { pass.lse = y.lse.in_call(); },
          "lse has shape (1, 2, 5); it must be (1, 2, 3)");
  refusal(
      [](auto& pass) {
        pass.q = {nullptr, {1, 2, 3, 4}};
      },
      "q is a null view; it must point to 24 elements");
}

TEST_CASE(
    "a scale that is no number, a head that is too wide and a configuration that is not compiled "
    "are refused") {
  if (harness::skipped_without_gpu()) return;
  const Call<Half> half({1, 1, 3, 5, 4});
  CHECK_THROWS_WITH(half.run({.scale = std::numeric_limits<double>::infinity()}),
                    "scale is inf; it must be a number from -1e38 to 1e38");
  const FlashForwardConfig unknown{
      .head_dim = 64, .block_queries = 96, .block_keys = 64, .warps = 3};
  CHECK_THROWS_AS(half.run({}, unknown), Unsupported);
  CHECK_THROWS_WITH(
      half.run({}, unknown),
      ContainsSubstring("config is 96 queries x 64 keys, 3 warps, head_dim 64; compiled are "));
  const Call<float> wide({1, 1, 1, 1, 1025});
  CHECK_THROWS_WITH(wide.run(), "head_dim is 1025; it must be at most 1024");
  CHECK_THROWS_AS(wide.run({}, FlashForwardConfig{64, 128, 64, 4}), Unsupported);
}

TEST_CASE("a configuration that has no room is refused by name") {
  if (harness::skipped_without_gpu()) return;
  device::set_shared_memory_limit(std::size_t{64} << 10);
  CHECK_THROWS_WITH(Call<float>({1, 1, 1, 1, 64}).run({}, FlashForwardConfig{64, 128, 64, 4}),
                    ContainsSubstring("flash_forward needs 106496 bytes of shared memory"));
  device::set_shared_memory_limit(std::nullopt);
}

TEST_CASE("without a GPU the call is an error, and the outputs stay as they are") {
  if (device::count() > 0) return;
  const AttentionShape shape{1, 1, 3, 5, 4};
  const Tensor<float, 4> q(shape.of_queries()), k(shape.of_keys());
  Tensor<float, 4> out(shape.of_queries());
  Tensor<float, 3> lse(shape.of_rows());
  std::fill_n(out.data(), out.size(), 7.0f);
  const auto call = [&](const std::optional<FlashForwardConfig>& config) {
    task<float>().flash_attention_forward_cuda(
        {q.view(), k.view(), k.view(), out.view(), lse.view()}, config);
  };
  CHECK_THROWS_AS(call(std::nullopt), CudaError);
  CHECK_THROWS_AS(call(FlashForwardConfig{64, 128, 64, 4}), CudaError);
  CHECK_THROWS_WITH(call(std::nullopt),
                    ContainsSubstring("./lab doctor says what this machine lacks"));
  CHECK(std::all_of(out.data(), out.data() + out.size(), [](float x) { return x == 7.0f; }));
}
