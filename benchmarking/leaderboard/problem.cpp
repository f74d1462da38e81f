// Implements problem.hpp: from a board's text to a problem.
#include "benchmarking/leaderboard/problem.hpp"

#include <algorithm>
#include <cstdio>

#include "common/error.hpp"

namespace flash::leaderboard {

namespace {

// "1x2x3x4" as four numbers of at least 1; throws ArgumentError.
Shape<4> sizes_in(const std::string& text) {
  long sizes[4] = {};
  int end = 0;
  const int read = std::sscanf(text.c_str(), "%6ldx%6ldx%6ldx%6ld%n", &sizes[0], &sizes[1],
                               &sizes[2], &sizes[3], &end);
  if (read != 4 || static_cast<std::size_t>(end) != text.size() || sizes[0] < 1 || sizes[1] < 1 ||
      sizes[2] < 1 || sizes[3] < 1)
    throw ArgumentError("a problem is '" + text +
                        "'; it must be four sizes of at least 1, as in 8x1x256x64");
  return {sizes[0], sizes[1], sizes[2], sizes[3]};
}

DType dtype_in(const std::string& text) {
  for (const DType each : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    if (text == to_string(each)) return each;
  throw ArgumentError("dtype is '" + text + "'; it must be one of: float32, float16, bfloat16");
}

}  // namespace

std::vector<Pass> attention_passes(const AttentionProblem& problem, std::size_t count,
                                   std::size_t element) {
  const double product = problem.product_flops();
  const double tensor =
      static_cast<double>(element) * static_cast<double>(element_count(problem.shape.of_queries()));
  std::vector<Pass> both{{"forward", 2 * product, 4 * tensor},
                         {"backward", 5 * product, 8 * tensor}};
  both.resize(std::min(count, both.size()));
  return both;
}

std::vector<Pass> softmax_matmul_passes(const SoftmaxMatmulShape& s) {
  return {{"forward", 2.0 * static_cast<double>(s.batch * s.d1 * s.d2 * s.d3),
           4.0 * static_cast<double>(s.batch * (s.d1 * s.d2 + s.d2 * s.d3 + s.d1 * s.d3))}};
}

std::unique_ptr<Problem> make_problem(const Asked& asked, const std::string& name) {
  constexpr std::string_view kCausal = ":causal";
  const bool causal = name.ends_with(kCausal);
  const auto [a, b, c, d] = sizes_in(causal ? name.substr(0, name.size() - kCausal.size()) : name);
  if (asked.kind == "attention")
    return make_problem(
        {.shape = {a, b, c, c, d}, .options = {.causal = causal}, .dtype = dtype_in(asked.dtype)},
        asked.passes);
  if (asked.kind == "softmax_matmul" && !causal)
    return make_problem(SoftmaxMatmulShape{a, b, c, d});
  throw ArgumentError("a problem is '" + name + "' of the kind '" + asked.kind +
                      "'; kinds are attention and softmax_matmul, the latter without a mask");
}

}  // namespace flash::leaderboard
