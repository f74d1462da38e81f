// Implements oracle.hpp: one loop per sum, nothing clever.
#include "common/oracle.hpp"

#include <cmath>
#include <limits>

#include "common/checks.hpp"

namespace flash {
namespace {

// softmax(x, axis) v, each term passed through `term` first.
template <class T, class Term>
Tensor<double, 3> softmax_times(TensorView<const T, 3> x, TensorView<const T, 3> v, int axis, Term term) {
  const Index batch = x.extent(0), d1 = x.extent(1), d2 = x.extent(2), d3 = v.extent(2);
  check_softmax_matmul_shapes(x.shape(), v.shape(), {batch, d1, d3});
  const Tensor<double, 3> p = softmax_oracle(x, axis);
  Tensor<double, 3> out({batch, d1, d3});
  for (Index b = 0; b < batch; ++b)
    for (Index i = 0; i < d1; ++i)
      for (Index j = 0; j < d2; ++j)
        for (Index c = 0; c < d3; ++c) out(b, i, c) += p(b, i, j) * term(static_cast<double>(v(b, j, c)));
  return out;
}

}  // namespace

template <class T>
Tensor<double, 3> softmax_oracle(TensorView<const T, 3> x, int axis) {
  axis = checked_axis(axis, 3);
  const int outer_axis = axis == 0 ? 1 : 0, inner_axis = axis == 2 ? 1 : 2;
  Tensor<double, 3> p(x.shape());
  for (Index outer = 0; outer < x.extent(outer_axis); ++outer)
    for (Index inner = 0; inner < x.extent(inner_axis); ++inner) {
      Index index[3] = {};
      index[outer_axis] = outer;
      index[inner_axis] = inner;
      Index& j = index[axis];

      double maximum = -std::numeric_limits<double>::infinity();
      bool has_nan = false;
      for (j = 0; j < x.extent(axis); ++j) {
        const double score = x(index[0], index[1], index[2]);
        has_nan |= std::isnan(score);
        maximum = std::fmax(maximum, score);
      }
      if (maximum == -std::numeric_limits<double>::infinity() && !has_nan) continue;  // no visible key: weights stay 0

      double sum = 0;
      for (j = 0; j < x.extent(axis); ++j) {
        double& weight = p(index[0], index[1], index[2]);
        weight = std::exp(static_cast<double>(x(index[0], index[1], index[2])) - maximum);
        sum += weight;
      }
      for (j = 0; j < x.extent(axis); ++j) p(index[0], index[1], index[2]) /= sum;
    }
  return p;
}

template <class T>
Tensor<double, 3> softmax_matmul_oracle(TensorView<const T, 3> x, TensorView<const T, 3> v, int axis) {
  return softmax_times(x, v, axis, [](double value) { return value; });
}

template <class T>
Tensor<double, 3> softmax_matmul_magnitude(TensorView<const T, 3> x, TensorView<const T, 3> v, int axis) {
  return softmax_times(x, v, axis, [](double value) { return std::fabs(value); });
}

double softmax_matmul_bound(Index d2, double largest_score) {
  constexpr double kUnitRoundoff = 0x1p-24;
  return kUnitRoundoff * (8 + 2 * largest_score + 4 * std::sqrt(static_cast<double>(d2)));
}

#define FLASH_INSTANTIATE(T)                                                                                                   \
  template Tensor<double, 3> softmax_oracle(TensorView<const T, 3>, int);                                                      \
  template Tensor<double, 3> softmax_matmul_oracle(TensorView<const T, 3>, TensorView<const T, 3>, int);                       \
  template Tensor<double, 3> softmax_matmul_magnitude(TensorView<const T, 3>, TensorView<const T, 3>, int)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(double);

}  // namespace flash
