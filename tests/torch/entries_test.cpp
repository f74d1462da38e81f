// PyTorch's kernels as passes of the registry, on the CPU: against the oracle on every graded
// problem of part 2 that they take, alone and together with our own passes; and what they say of
// their memory.
#include <map>
#include <string>
#include <vector>

#include "common/all_passes.hpp"
#include "harness/catch.hpp"
#include "part2/pass_checks.hpp"

using namespace flash;
using part2::AttentionCase;
using part2::Data;

namespace {

bool of_torch(const std::string& name) { return name.starts_with("pytorch_"); }
bool refuses(const std::string& wrong) { return wrong.starts_with("refused: "); }

// How many problems each pair of passes took.
using Taken = std::map<std::string, int>;

// Every pair of which at least one pass is PyTorch's.
template <class T>
void check_pairs(const Registry& registry, const AttentionCase& problem, Taken& taken) {
  const part2::Solved<T> solved(problem);
  for (const auto& first : registry.forward.entries()) {
    if (first.device != DeviceKind::kCpu) continue;
    part2::Forward<T> forward(first, solved);
    CAPTURE(first.name, problem.name, to_string(dtype_of<T>()));
    if (refuses(forward.wrong)) continue;
    CHECK(forward.wrong == "");
    for (const auto& second : registry.backward.entries()) {
      if (second.device != DeviceKind::kCpu || !(of_torch(first.name) || of_torch(second.name)))
        continue;
      if (first.name != second.name && (first.only_as_pair || second.only_as_pair)) continue;
      CAPTURE(second.name);
      const std::string wrong = part2::wrong_with(second, forward, solved);
      if (refuses(wrong)) continue;
      CHECK(wrong == "");
      ++taken[first.name + "+" + second.name];
    }
  }
}

}  // namespace

TEST_CASE("PyTorch's passes are right, and go with ours, on every problem that they take") {
  const Registry registry = all_passes();
  Taken taken, taken_in_16_bits;
  for (const AttentionCase& problem : part2::attention_cases()) {
    // PyTorch makes rows NaN that see no finite score, and those that have a NaN behind the
    // diagonal.
    if (problem.data == Data::kMinusInfinity || problem.data == Data::kNaN ||
        problem.data == Data::kNaNInScores || problem.data == Data::kLowest)
      continue;
    problem.float64 ? check_pairs<double>(registry, problem, taken)
                    : check_pairs<float>(registry, problem, taken);
    if (problem.data == Data::kNormal) check_pairs<Half>(registry, problem, taken_in_16_bits);
    if (problem.data == Data::kNormal) check_pairs<BFloat16>(registry, problem, taken_in_16_bits);
  }
  for (const std::string pair : {"standard+pytorch_flash", "flash+pytorch_flash",
                                 "pytorch_flash+flash", "pytorch_flash+pytorch_flash"})
    CHECK(taken[pair] == 37);  // all but the three whose rows have gaps between their elements
  for (const std::string pair : {"pytorch_math+pytorch_math", "pytorch_sdpa+pytorch_sdpa"}) {
    CHECK(taken[pair] == 40);
    CHECK(taken_in_16_bits[pair] == 64);
  }
  CHECK(taken_in_16_bits["pytorch_flash+pytorch_flash"] == 58);
}

TEST_CASE("PyTorch's passes say how much they allocated") {
  const Registry registry = all_passes();
  const AttentionCase problem{.name = "", .shape = {1, 2, 2048, 2048, 16}};
  const part2::AttentionInputs<float> x = part2::make_inputs<float>(problem, 1);
  Tensor<float, 4> out(problem.shape.of_queries());
  Tensor<float, 3> lse(problem.shape.of_rows());
  const AttentionForward<float> pass{std::as_const(x.q).view(), std::as_const(x.k).view(),
                                     std::as_const(x.v).view(), out.view(), lse.view()};
  const auto memory_of = [&](const std::string& name) {
    PassMemory memory;
    registry.forward.find(name, DeviceKind::kCpu).run.float32(pass, memory);
    return memory;
  };
  const std::size_t p = 4 * 2 * 2048 * 2048;  // 60 times what a thread keeps of the scores
  const PassMemory flash = memory_of("pytorch_flash"), math = memory_of("pytorch_math");
  CHECK(flash.own_peak_bytes >= 4 * static_cast<std::size_t>(out.size() + lse.size()));
  CHECK(flash.own_peak_bytes < p);
  CHECK(math.own_peak_bytes >= p);
  CHECK(math.kept_bytes >= p);
}

TEST_CASE("PyTorch's passes refuse what would end the process or be wrong") {
  const Registry registry = all_passes();
  const auto& flash = registry.forward.find("pytorch_flash", DeviceKind::kCpu);
  AttentionProblem problem{
      .shape = {1, 1, 4, 0, 8}, .options = {}, .dtype = DType::kFloat32, .tensors = {}};
  CHECK(flash.why_not(problem) == "keys is 0; PyTorch's kernel needs at least 1");
  problem.shape.keys = 4;
  problem.tensors = {{"q", {32, 32, 8, 1}, 64}, {"k", {32, 32, 1, 4}, 64}};
  CHECK(flash.why_not(problem) == "k's stride along head_dim is 4; PyTorch's kernel needs 1");
}
