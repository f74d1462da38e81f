// The list of task 1.A's cases, and how one is judged. To add a case, add a line to the list.
#include "part1/softmax_matmul_cases.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/oracle.hpp"
#include "harness/cases/far_apart.hpp"
#include "harness/diagnosis/mistakes.hpp"

namespace flash::part1 {

std::string SoftmaxMatmulCase::requirement() const {
  if (measures_memory) return "memory";
  if (layout != kRowMajor || shift != 0) return "strides";
  if ((x != kNormal && x != kHalfNormal) || v != kNormal || shape.d2 == 0) return "special values";
  return shape.d1 % blocks.block_1 != 0 || shape.d2 % blocks.block_2 != 0 ? "ragged ends"
                                                                          : "whole blocks";
}

// Where a block is not compiled, and where it is any number.
std::vector<SoftmaxMatmulCase> softmax_matmul_cases_on_device() {
  return {
      {"blocks 16 and 32: 1 x 33 x 70 x 9", {1, 33, 70, 9}, {16, 32}},
      {"blocks 32 and 16: 1 x 33 x 70 x 9", {1, 33, 70, 9}, {32, 16}},
      {"blocks 32 and 64: 1 x 33 x 70 x 9", {1, 33, 70, 9}, {32, 64}},
  };
}
std::vector<SoftmaxMatmulCase> softmax_matmul_cases_on_host() {
  return {
      {"blocks of 1: 2 x 9 x 11 x 5", {2, 9, 11, 5}, {1, 1}},
      {"blocks of 200: 1 x 210 x 230 x 5", {1, 210, 230, 5}, {200, 200}},
      {"33000 keys: 1 x 1 x 33000 x 2", {1, 1, 33000, 2}},
      {"66000 rows: 1 x 66000 x 2 x 1", {1, 66000, 2, 1}},
      {"66000 batches: 66000 x 1 x 2 x 1", {66000, 1, 2, 1}},
  };
}

std::vector<SoftmaxMatmulCase> softmax_matmul_cases() {
  constexpr SoftmaxMatmulShape odd{2, 31, 77, 48}, strided{2, 33, 47, 35};
  return {
      // Shapes. Small and odd ones carry correctness: in 3 x 33 x 47 x 65 a key weighs 2 %.
      {"one element", {1, 1, 1, 1}},
      {"block_2 divides d2: 2 x 32 x 64 x 32", {2, 32, 64, 32}},
      {"block_2 does not divide d2: 2 x 32 x 70 x 32", {2, 32, 70, 32}},
      {"ragged: 3 x 33 x 47 x 65", {3, 33, 47, 65}},
      {"smaller than a block: 2 x 5 x 3 x 7", {2, 5, 3, 7}},
      {"blocks 64 and 16: 2 x 70 x 100 x 40", {2, 70, 100, 40}, {64, 16}},
      {"blocks 16 and 64: 2 x 70 x 100 x 40", {2, 70, 100, 40}, {16, 64}},
      {"blocks 32 and 32: 1 x 65 x 33 x 129", {1, 65, 33, 129}, {32, 32}},
      {"blocks 64 and 64: 1 x 130 x 190 x 257", {1, 130, 190, 257}, {64, 64}},
      {"d3 in several chunks: 1 x 20 x 50 x 600", {1, 20, 50, 600}},
      {"many keys: 1 x 17 x 4099 x 33", {1, 17, 4099, 33}},
      {"many batches: 700 x 3 x 9 x 5", {700, 3, 9, 5}},
      {"no keys: 2 x 9 x 0 x 5", {2, 9, 0, 5}},
      // Scores that only an online softmax with a true running maximum survives: what the task is
      // about counts double.
      {.name = "scores of deviation 0.5", .shape = odd, .x = kHalfNormal},
      {.name = "scores up to 200 in size", .shape = odd, .x = kLargeLogits},
      {.name = "rising scores: a new maximum in each block", .shape = odd, .x = kRising},
      {.name = "equal scores", .shape = odd, .x = kAllEqual},
      {.name = "one-hot rows", .shape = odd, .x = kOneHot},
      {.name = "very negative scores", .shape = odd, .x = kVeryNegative},
      {.name = "masked scores: -inf and whole rows of it", .shape = odd, .x = kMasked},
      {.name = "equal scores of -1.2e9", .shape = odd, .x = kLowest},
      {.name = "neighbouring rows far apart", .shape = odd, .x = kFarApart},
      {.name = "NaN stays in its row", .shape = odd, .x = kNaN},
      {.name = "NaN in v reaches its column", .shape = odd, .x = kLargeLogits, .v = kNaN},
      {.name = "values that show which keys were counted",
       .shape = {2, 31, 77, 90},
       .v = kKeySignature},
      // Memory. Without the last case, a function that holds all of softmax(X) would pass.
      {.name = "strides: padded rows", .shape = strided, .layout = kPaddedRows},
      {.name = "strides: transposed", .shape = strided, .layout = kTransposed},
      {.name = "strides: spread out", .shape = strided, .layout = kSpread},
      {.name = "strides: one layout for each tensor", .shape = {2, 20, 23, 6}, .layout = kMixed},
      {.name = "strides: one v for all batches", .shape = {3, 9, 11, 6}, .layout = kBroadcast},
      {.name = "tensors that are not aligned", .shape = {2, 20, 36, 40}, .shift = 1},
      {.name = "no quadratic memory: 1 x 512 x 1024 x 32",
       .shape = {1, 512, 1024, 32},
       .measures_memory = true},
  };
}

namespace {

// A few blocks of each kind: rows of o and V, a tile of P, m and l. 4x for an implementation that
// keeps some of them twice.
std::size_t fused_extra_bytes(const SoftmaxMatmulCase& p) {
  const auto [block_1, block_2] = p.blocks;
  return 4 * sizeof(float) *
         static_cast<std::size_t>((block_1 + block_2) * p.shape.d3 + block_1 * block_2 +
                                  2 * block_1);
}

// What softmax_matmul_bound() asks for. Scores that are all equal count as 0: their differences are
// exact.
double largest_finite(const Tensor<float, 3>& x) {
  float largest = 0, least = INFINITY, most = -INFINITY;
  for (Index k = 0; k < x.size(); ++k) {
    if (!std::isfinite(x.data()[k])) continue;
    largest = std::max(largest, std::fabs(x.data()[k]));
    least = std::min(least, x.data()[k]), most = std::max(most, x.data()[k]);
  }
  return least == most ? 0 : largest;
}

using Padded = PassTensor<float, 3>;

Tensor<float, 3> scores_of(const SoftmaxMatmulCase& problem, std::uint64_t seed) {
  Tensor<float, 3> x = make_input<3>(problem.shape.of_x(), problem.x, 2 * seed);
  constexpr Index kOfNaN = 3;  // a row of which a maximum sees nothing
  if (problem.x == kNaN && problem.shape.d1 > kOfNaN)
    std::fill_n(&x(0, kOfNaN, 0), problem.shape.d2, std::nanf(""));
  return x;
}

std::size_t run_on(const RunFused& run, const SoftmaxMatmulCase& problem, Padded& x, Padded& v,
                   Padded& out) {
  const std::size_t extra_bytes = run(problem, x.padded(), v.padded(), out.padded());
  for (Padded* const tensor : {&x, &v, &out}) tensor->copy_back();
  return extra_bytes;
}

// Eight rows belong to a warp, and four lanes share a row's keys, of which the first brings alpha
// and l to all columns.
void mistakes_of_lanes(std::vector<harness::Mistake>& known) {
  const auto lanes = [](Steps& steps) {
    steps.lanes = 4;
    steps.lane_of_key = [](Index key, Index) { return key % 4; };
  };
  auto& of_one_lane = harness::named("maximum of one lane", known);
  of_one_lane.text =
      "each lane has the maximum of its own keys only; the lanes of a row need the same one, which "
      "row_max() finds";
  of_one_lane.ways.push_back(lanes);
  for (const Index together : {1, 2})
    harness::named("sum of one lane", known).ways.push_back([lanes, together](Steps& steps) {
      lanes(steps);
      steps.lane_of_key = [together](Index key, Index) { return key % 4 / together; };
      steps.share_maximum = true, steps.share_sum = false;
    });
  harness::named("sum of the lanes added twice", known)
      .ways.push_back(
          harness::replace(&Steps::sum, [](auto& at) { return at.l * at.alpha + 4 * at.sum; }));

  // The row of the lane that owns the column, the warp's first row, and that of lane number r.
  const auto first_row = [](Index row) { return row / 8 * 8; };
  for (const auto& row :
       {std::function([=](Index own, Index column) { return first_row(own) + column % 128 / 16; }),
        {[=](Index own, Index) { return first_row(own); }},
        {[=](Index own, Index) { return first_row(own) + own % 8 / 4; }}}) {
    harness::named("alpha of another row", known)
        .ways.push_back(harness::replace(&Steps::before_PV_of, [row](auto& at, Index column) {
          return at.alpha_of(row(at.first.i, column));
        }));
    harness::named("sum of another row", known)
        .ways.push_back(harness::replace(&Steps::divisor, [row](auto& at, Index column, auto& l) {
          return l(row(at.i, column));
        }));
  }
  harness::named("weights of another row", known)
      .ways.push_back(harness::replace(&Steps::weight, [=](auto& at, Index key) {
        return at.weight_of(first_row(at.first.i), key);
      }));

  // Where the weight of row r and key j is looked for, in P_smem of (key, row), or was put there.
  std::vector<harness::Change> orders;
  for (const auto& found : {std::function([](Index r, Index j, Index keys) {
                              return std::pair{(r * keys + j) % 8, (r * keys + j) / 8};
                            }),
                            {[](Index r, Index j, Index keys) {
                              return std::pair{(j * 8 + r) / keys, (j * 8 + r) % keys};
                            }},
                            {[](Index r, Index j, Index keys) {
                              return std::pair{r, j % (keys / 4) * 4 + j / (keys / 4)};
                            }},
                            {[](Index r, Index j, Index keys) {
                              return std::pair{r, j % 4 * (keys / 4) + j / 4};
                            }}})
    orders.push_back(harness::replace(&Steps::weight, [=](auto& at, Index j) {
      const Index own = at.first.i, keys = at.first.blocks.keys;
      const auto [r, key] = found(own % 8, j, keys);
      return at.weight_of(first_row(own) + r, key);
    }));
  known.push_back({"weights of P_smem in another order",
                   "the weights are read from P_smem in another order than they were stored in: "
                   "that of row r and key j of the tile is P_smem[j * kRowsPerWarp + r]; or the "
                   "scores are of other keys than every kLanesPerRow-th from the lane's first on",
                   "P_smem", harness::Group::kKeys, true, orders});
}

harness::SeenForward seen_of(const SoftmaxMatmulCase& problem, double largest, Padded& x, Padded& v,
                             Padded& out, double fill = harness::kPoisoned) {
  const auto [batch, d1, d2, d3] = problem.shape;
  std::vector<harness::Misplaced> misplaced;
  out.add_misplaced(misplaced, Output::kOut, x, v);
  std::optional<AttentionShape> also;
  if (const auto& shape = problem.also_solved)
    also = AttentionShape{shape->batch, 1, shape->d1, shape->d2, shape->d3};
  return {.shape = {batch, 1, d1, d2, d3},
          .k = x.seen(v, out),
          .v = v.seen(x, out),
          .has_scores = true,
          .out = harness::with_heads(harness::in_float64(out.view())),
          .misplaced = misplaced,
          .precision = harness::precision_of<float>(softmax_matmul_bound(d2, largest)),
          .lse_bound = 1,
          .block_queries = problem.blocks.block_1,
          .block_keys = problem.blocks.block_2,
          .fill = fill,
          .also_solved = also,
          .own_mistakes = problem.on_device ? mistakes_of_lanes : nullptr};
}

// What the function gives for another problem, with the blocks of this one.
harness::SeenForward run_again(SoftmaxMatmulCase problem, std::uint64_t seed, const RunFused& run,
                               const harness::Probe& probe) {
  using harness::Data;
  problem.shape = {probe.shape.batch, probe.shape.queries, probe.shape.keys, probe.shape.head_dim};
  const bool stay_equal = problem.also_solved && problem.x == kAllEqual;
  problem.x = stay_equal ? kAllEqual : harness::pattern_of_scores(probe.data);
  if (probe.block > 0) problem.blocks = {probe.block, probe.block};
  if (probe.shares_none && problem.layout == kBroadcast) problem.layout = kRowMajor;
  Tensor<float, 3> x = scores_of(problem, seed);
  problem.v = stay_equal ? problem.v : probe.data == Data::kNaN ? kNaN : kNormal;
  Tensor<float, 3> v = make_input<3>(problem.shape.of_v(), problem.v, 2 * seed + 1);
  v = harness::shared_in(problem.layout, 1, std::move(v));
  if (probe.data == Data::kSmallIntegers && !stay_equal)
    for (Tensor<float, 3>* const tensor : {&x, &v})
      for (Index n = 0; n < tensor->size(); ++n)
        tensor->data()[n] = std::round(2 * tensor->data()[n]);
  Padded padded_x("x", x, layout_of(problem.layout, 0), problem.shift, probe.fill),
      padded_v("v", v, layout_of(problem.layout, 1), problem.shift, probe.fill),
      out("out", problem.shape.of_out(), layout_of(problem.layout, 2), problem.shift, probe.fill);
  (void)run_on(run, problem, padded_x, padded_v, out);
  return seen_of(problem, largest_finite(x), padded_x, padded_v, out, probe.fill);
}

}  // namespace

template <class T>
std::string wrong_product(TensorView<const float, 3> got, TensorView<const T, 3> x,
                          TensorView<const T, 3> v, double bound, const std::string& row,
                          Index block) {
  using harness::with_heads;
  return harness::wrong_in<float>(
      with_heads(got),
      {with_heads(softmax_matmul_oracle(x, v)), with_heads(softmax_matmul_magnitude(x, v))}, bound,
      row, block);
}
template std::string wrong_product(TensorView<const float, 3>, TensorView<const float, 3>,
                                   TensorView<const float, 3>, double, const std::string&, Index);
template std::string wrong_product(TensorView<const float, 3>, TensorView<const double, 3>,
                                   TensorView<const double, 3>, double, const std::string&, Index);

Verdict judge(const SoftmaxMatmulCase& problem, std::uint64_t seed, const RunFused& run) {
  const auto& [batch, d1, d2, d3] = problem.shape;
  const Tensor<float, 3> x = scores_of(problem, seed);
  const Tensor<float, 3> v = harness::shared_in(
      problem.layout, 1, make_input<3>(problem.shape.of_v(), problem.v, 2 * seed + 1));
  Padded padded_x("x", x, layout_of(problem.layout, 0), problem.shift),
      padded_v("v", v, layout_of(problem.layout, 1), problem.shift),
      out("out", problem.shape.of_out(), layout_of(problem.layout, 2), problem.shift);
  const std::size_t extra_bytes = run_on(run, problem, padded_x, padded_v, out);

  if (const std::string changed = damage_of(padded_x, padded_v); !changed.empty())
    return {false, changed};
  std::string wrong = damage_of(out);
  if (wrong.empty())
    wrong =
        wrong_product(out.view(), x.view(), v.view(), softmax_matmul_bound(d2, largest_finite(x)),
                      "row", problem.blocks.block_1);
  if (!wrong.empty())
    return harness::explained<harness::SeenForward>(
        wrong, seen_of(problem, largest_finite(x), padded_x, padded_v, out),
        [=](const harness::Probe& probe) { return run_again(problem, seed, run, probe); });
  const std::size_t most_bytes = fused_extra_bytes(problem);
  if (problem.measures_memory && extra_bytes > most_bytes)
    return {false, "It had " + std::to_string(extra_bytes) +
                       " extra bytes in use at once; a few blocks are " +
                       std::to_string(most_bytes) + " at most, and all of softmax(X) would be " +
                       std::to_string(sizeof(float) * batch * d1 * d2) + "."};
  return {true, ""};
}

void add_softmax_matmul_cases(TaskUnderTest& task, const RunFused& run, bool on_device) {
  std::vector<SoftmaxMatmulCase> problems = softmax_matmul_cases();
  for (const SoftmaxMatmulCase& more :
       on_device ? softmax_matmul_cases_on_device() : softmax_matmul_cases_on_host())
    problems.push_back(more);
  for (SoftmaxMatmulCase problem : problems) {
    if (on_device && problem.measures_memory) continue;  // needs the checks: fused_cuda_task.cpp
    problem.on_device = on_device;
    task.add(problem.name, problem.requirement(),
             [problem, run](auto seed) { return judge(problem, seed, run); });
  }
  task.add(harness::kOtherNumbersName, "whole blocks", [run, on_device](auto seed) {
    return harness::with_other_numbers(seed, [&](auto of) {
      return judge({.shape = {1, 32, 32, 8}, .on_device = on_device}, of, run);
    });
  });
}

void add_far_apart(TaskUnderTest& task,
                   const std::function<void(const SoftmaxMatmul<float>&)>& run) {
  task.add(harness::kFarApartName, "strides", harness::Needs::kSparseMemory, [run](auto seed) {
    return harness::with_far_apart([run, seed](harness::FarApart& memory) {
      constexpr SoftmaxMatmulShape shape{2, 20, 23, 6};
      const auto x = make_input<3>(shape.of_x(), kNormal, seed),
                 v = make_input<3>(shape.of_v(), kNormal, seed + 1);
      const auto out = memory.tensor<float, 3>(shape.of_out());
      run({memory.tensor(x), memory.tensor(v), out});
      return wrong_product(out, x.view(), v.view(), softmax_matmul_bound(shape.d2, 5), "row", 0);
    });
  });
}

}  // namespace flash::part1
