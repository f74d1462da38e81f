// The list of task 1.A's cases, and how one is judged. To add a case, add a line to the list.
#include "part1/softmax_matmul_cases.hpp"

#include <algorithm>
#include <cmath>

#include "common/compare.hpp"
#include "common/oracle.hpp"

namespace flash::part1 {

using harness::GradedCase;
using harness::Layout;
using harness::PaddedTensor;
using harness::Verdict;

std::vector<SoftmaxMatmulCase> softmax_matmul_cases() {
  return {
      // Shapes. Small and odd ones carry correctness: in 3 x 33 x 47 x 65 a key weighs 2 %.
      {.name = "one element", .batch = 1, .d1 = 1, .d2 = 1, .d3 = 1},
      {.name = "block_2 divides d2: 2 x 32 x 64 x 32", .batch = 2, .d1 = 32, .d2 = 64, .d3 = 32},
      {.name = "block_2 does not divide d2: 2 x 32 x 70 x 32", .batch = 2, .d1 = 32, .d2 = 70, .d3 = 32},
      {.name = "ragged: 3 x 33 x 47 x 65", .batch = 3, .d1 = 33, .d2 = 47, .d3 = 65},
      {.name = "smaller than a block: 2 x 5 x 3 x 7", .batch = 2, .d1 = 5, .d2 = 3, .d3 = 7},
      {.name = "blocks 64 and 16: 2 x 70 x 100 x 40", .batch = 2, .d1 = 70, .d2 = 100, .d3 = 40, .block_1 = 64},
      {.name = "blocks 16 and 64: 2 x 70 x 100 x 40", .batch = 2, .d1 = 70, .d2 = 100, .d3 = 40, .block_2 = 64},
      {.name = "blocks 32 and 32: 1 x 65 x 33 x 129", .batch = 1, .d1 = 65, .d2 = 33, .d3 = 129, .block_1 = 32, .block_2 = 32},
      {.name = "blocks 64 and 64: 1 x 130 x 190 x 257", .batch = 1, .d1 = 130, .d2 = 190, .d3 = 257, .block_1 = 64, .block_2 = 64},
      {.name = "d3 in several chunks: 1 x 20 x 50 x 600", .batch = 1, .d1 = 20, .d2 = 50, .d3 = 600},
      {.name = "many keys: 1 x 17 x 4099 x 33", .batch = 1, .d1 = 17, .d2 = 4099, .d3 = 33},
      {.name = "many batches: 700 x 3 x 9 x 5", .batch = 700, .d1 = 3, .d2 = 9, .d3 = 5},
      {.name = "no keys: 2 x 9 x 0 x 5", .batch = 2, .d1 = 9, .d2 = 0, .d3 = 5},
      // Scores that only an online softmax with a true running maximum survives: what the task is about counts double.
      {.name = "scores of deviation 0.5", .batch = 2, .d1 = 31, .d2 = 77, .d3 = 48, .x = Pattern::kHalfNormal},
      {.name = "scores up to 200 in size", .batch = 2, .d1 = 31, .d2 = 77, .d3 = 48, .x = Pattern::kLargeLogits, .weight = 2},
      {.name = "rising scores: a new maximum in each block", .batch = 2, .d1 = 31, .d2 = 77, .d3 = 48, .x = Pattern::kRising, .weight = 2},
      {.name = "equal scores", .batch = 2, .d1 = 31, .d2 = 77, .d3 = 48, .x = Pattern::kAllEqual},
      {.name = "one-hot rows", .batch = 2, .d1 = 31, .d2 = 77, .d3 = 48, .x = Pattern::kOneHot},
      {.name = "very negative scores", .batch = 2, .d1 = 31, .d2 = 77, .d3 = 48, .x = Pattern::kVeryNegative, .weight = 2},
      {.name = "masked scores: -inf and whole rows of it", .batch = 2, .d1 = 31, .d2 = 77, .d3 = 48, .x = Pattern::kMasked, .weight = 2},
      {.name = "NaN stays in its row", .batch = 2, .d1 = 31, .d2 = 77, .d3 = 48, .x = Pattern::kNaN},
      {.name = "values that show which keys were counted", .batch = 2, .d1 = 31, .d2 = 77, .d3 = 90, .v = Pattern::kKeySignature},
      // Memory. Without the last case, a function that holds all of softmax(X) would pass.
      {.name = "strides: padded rows", .batch = 2, .d1 = 33, .d2 = 47, .d3 = 35, .layout = Layout::kPaddedRows},
      {.name = "strides: transposed", .batch = 2, .d1 = 33, .d2 = 47, .d3 = 35, .layout = Layout::kTransposed},
      {.name = "strides: spread out", .batch = 2, .d1 = 33, .d2 = 47, .d3 = 35, .layout = Layout::kSpread},
      {.name = "no quadratic memory: 1 x 512 x 1024 x 32", .batch = 1, .d1 = 512, .d2 = 1024, .d3 = 32, .weight = 4, .measures_memory = true},
  };
}

namespace {

// A few blocks of each kind: rows of o and V, a tile of P, m and l. 4x for an implementation that keeps some of them twice.
std::size_t fused_extra_bytes(const SoftmaxMatmulCase& p) {
  return 4 * sizeof(float) * static_cast<std::size_t>((p.block_1 + p.block_2) * p.d3 + p.block_1 * p.block_2 + 2 * p.block_1);
}

double largest_finite(const Tensor<float, 3>& x) {
  double largest = 0;
  for (Index k = 0; k < x.size(); ++k)
    if (std::isfinite(x.data()[k])) largest = std::max(largest, std::fabs(static_cast<double>(x.data()[k])));
  return largest;
}

// Rows whose oracle is NaN have to be NaN, all of each; the others are compared without them. Returns what is wrong, or "".
std::string take_out_nan_rows(Tensor<float, 3>& got, Tensor<double, 3>& want) {
  for (Index b = 0; b < want.extent(0); ++b)
    for (Index i = 0; i < want.extent(1); ++i)
      for (Index c = 0; c < want.extent(2); ++c) {
        if (!std::isnan(want(b, i, c))) continue;
        const float value = got(b, i, c);
        if (!std::isnan(value) || is_poison(value))
          return "batch " + std::to_string(b) + ", row " + std::to_string(i) + ", column " + std::to_string(c) + ": got " +
                 (is_poison(value) ? "nothing (never written)" : std::to_string(value)) +
                 ", expected NaN: a score of that row is NaN, and that must not be hidden";
        got(b, i, c) = 0;
        want(b, i, c) = 0;
      }
  return "";
}

}  // namespace

Verdict judge(const SoftmaxMatmulCase& problem, std::uint64_t seed, const RunFused& run) {
  const auto [name, batch, d1, d2, d3, block_1, block_2, x_pattern, v_pattern, layout, weight, measures_memory] = problem;
  const Tensor<float, 3> x = make_input<3>({batch, d1, d2}, x_pattern, 2 * seed);
  const Tensor<float, 3> v = make_input<3>({batch, d2, d3}, v_pattern, 2 * seed + 1);

  const PaddedTensor x_before(x, layout), v_before(v, layout);
  PaddedTensor padded_x = x_before, padded_v = v_before, padded_out({batch, d1, d3}, layout);
  const std::size_t extra_bytes = run(problem, padded_x, padded_v, padded_out);

  if (const auto where = padded_out.written_outside()) return {false, "It writes outside of `out`: " + *where + "."};
  if (!padded_x.same_bits(x_before)) return {false, "It changes `x`. Inputs must stay as they are."};
  if (!padded_v.same_bits(v_before)) return {false, "It changes `v`. Inputs must stay as they are."};

  Tensor<double, 3> want = softmax_matmul_oracle(x.view(), v.view());
  const Tensor<double, 3> magnitude = softmax_matmul_magnitude(x.view(), v.view());
  Tensor<float, 3> got = packed(padded_out.view());
  if (const std::string wrong = take_out_nan_rows(got, want); !wrong.empty()) return {false, wrong};

  const double bound = softmax_matmul_bound(d2, largest_finite(x));
  CompareOptions options;
  options.max_scaled = bound;
  // Whole-tensor error against the result, which is smaller than the terms summed: up to sqrt(d2) of them cancel.
  options.max_frobenius = bound * std::sqrt(static_cast<double>(std::max<Index>(d2, 1)));
  options.axes = {"batch", "row", "column"};
  options.blocks = {0, block_1, 0};
  options.magnitude = magnitude.data();
  const Comparison comparison = compare<3>(got.view(), want, options);
  if (!comparison.pass) return {false, comparison.text};

  if (measures_memory && extra_bytes > fused_extra_bytes(problem))
    return {false, "It had " + std::to_string(extra_bytes) + " extra bytes in use at once; a few blocks are " +
                       std::to_string(fused_extra_bytes(problem)) + " at most, and all of softmax(X) would be " +
                       std::to_string(sizeof(float) * batch * d1 * d2) + "."};
  return {true, comparison.text};
}

std::vector<GradedCase> graded_softmax_matmul(const RunFused& run) {
  std::vector<GradedCase> graded;
  for (const SoftmaxMatmulCase& problem : softmax_matmul_cases())
    graded.push_back({problem.name, problem.weight, [problem, run](std::uint64_t seed) { return judge(problem, seed, run); }});
  return graded;
}

}  // namespace flash::part1
