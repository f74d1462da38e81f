#include "benchmarking/softmax_matmul_inputs.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "common/cpu/threads.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"

namespace flash {
namespace {

// N(0, 1), each batch from a seed of its own: at full size X holds 2^28 numbers, 10 s for one
// thread.
Tensor<float, 3> normal_input(const Shape<3>& shape, std::uint64_t seed) {
  Tensor<float, 3> tensor(shape);
  const Index slice = shape[1] * shape[2];
  parallel_for(shape[0], [&](Index b) {
    fill(tensor.data() + b * slice, shape[1], shape[2], Pattern::kNormal,
         seed + static_cast<std::uint64_t>(b));
  });
  return tensor;
}

}  // namespace

SoftmaxMatmulInputs::SoftmaxMatmulInputs(const SoftmaxMatmulShape& of_problem, std::uint64_t seed)
    : shape(of_problem),
      x(normal_input(shape.of_x(), seed)),
      v(normal_input(shape.of_v(), seed + (std::uint64_t{1} << 32))),  // it shares no seed with x
      seed_(seed) {}

void SoftmaxMatmulInputs::prepare_check(bool of_all_rows) {
  constexpr Index kPiece = 8;  // rows that are compared together
  rows_.clear();
  if (of_all_rows) {
    for (Index b = 0; b < shape.batch; ++b)
      for (Index i = 0; i < shape.d1; i += kPiece)
        rows_.push_back({.batch = b, .first = i, .count = std::min(kPiece, shape.d1 - i)});
  } else {
    // The first and last rows, where blocks and tails go wrong, and some in between.
    Random random(seed_);
    for (const Index b : std::set<Index>{0, shape.batch / 2, shape.batch - 1}) {
      std::set<Index> rows{0, shape.d1 / 2, shape.d1 - 1};
      for (int i = 0; i < 5; ++i) rows.insert(random.below(shape.d1));
      for (const Index row : rows) rows_.push_back({.batch = b, .first = row, .count = 1});
    }
  }
  parallel_for(static_cast<Index>(rows_.size()), [&](Index n) {
    Rows& rows = rows_[static_cast<std::size_t>(n)];
    const float* const first = &x(rows.batch, rows.first, 0);
    const TensorView<const float, 3> scores(first, {1, rows.count, shape.d2}),
        values(&v(rows.batch, 0, 0), {1, shape.d2, shape.d3});
    rows.want = softmax_matmul_oracle(scores, values);
    rows.magnitude = softmax_matmul_magnitude(scores, values);
    float largest = 0;
    for (Index i = 0; i < scores.size(); ++i)
      if (std::isfinite(first[i])) largest = std::max(largest, std::fabs(first[i]));
    rows.bound = softmax_matmul_bound(shape.d2, largest);
  });
}

Verdict SoftmaxMatmulInputs::check(TensorView<const float, 3> out) const {
  Verdict verdict;
  for (const Rows& rows : rows_) {
    verdict.add(verdict_of(&out(rows.batch, rows.first, 0), rows.want, rows.magnitude, rows.bound,
                           "row",
                           "out of batch " + std::to_string(rows.batch) +
                               (rows.count == 1 ? ", row " : ", rows from ") +
                               std::to_string(rows.first) + (rows.count == 1 ? ": " : " on: ")));
  }
  return verdict;
}

}  // namespace flash
