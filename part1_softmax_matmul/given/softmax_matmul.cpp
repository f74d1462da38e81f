// The unfused function on the CPU: the whole softmax P (batch, d1, d2) first, then a blocked
// product P V.
#include "part1_softmax_matmul/softmax_matmul.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/checks.hpp"

namespace flash {
namespace {

// One slice of a softmax: `count` scores, `x_step` elements apart, to `count` weights, `p_step`
// apart. Three passes.
void softmax_slice(const float* x, Index x_step, float* p, Index p_step, Index count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float maximum = -kInfinity;
  for (Index j = 0; j < count; ++j) maximum = std::fmax(maximum, x[j * x_step]);
  if (maximum == -kInfinity)
    maximum = 0;  // nothing visible: every exp below is exp(-inf) = 0, or NaN where x is

  float sum = 0;
  for (Index j = 0; j < count; ++j) {
    p[j * p_step] = std::exp(x[j * x_step] - maximum);
    sum += p[j * p_step];
  }
  if (sum == 0) return;
  for (Index j = 0; j < count; ++j) p[j * p_step] /= sum;
}

void softmax(TensorView<const float, 3> x, TensorView<float, 3> p, int axis) {
  const int outer_axis = axis == 0 ? 1 : 0, inner_axis = axis == 2 ? 1 : 2;
  for (Index outer = 0; outer < x.extent(outer_axis); ++outer)
    for (Index inner = 0; inner < x.extent(inner_axis); ++inner)
      softmax_slice(x.data() + outer * x.stride(outer_axis) + inner * x.stride(inner_axis),
                    x.stride(axis),
                    p.data() + outer * p.stride(outer_axis) + inner * p.stride(inner_axis),
                    p.stride(axis), x.extent(axis));
}

// out = p v, a block of kRows rows against a block of kKeys keys at a time: V's block is copied
// once to where its rows are contiguous and stay in cache, and serves kRows rows.
void matmul(TensorView<const float, 3> p, TensorView<const float, 3> v, TensorView<float, 3> out) {
  constexpr Index kRows = 32, kKeys = 64;
  const Index d1 = p.extent(1), d2 = p.extent(2), d3 = v.extent(2);
  Tensor<float, 2> v_block({kKeys, d3}), o({kRows, d3});

  for (Index b = 0; b < p.extent(0); ++b)
    for (Index i0 = 0; i0 < d1; i0 += kRows) {
      const Index rows = std::min(kRows, d1 - i0);
      std::fill_n(o.data(), rows * d3, 0.0f);
      for (Index j0 = 0; j0 < d2; j0 += kKeys) {
        const Index keys = std::min(kKeys, d2 - j0);
        for (Index j = 0; j < keys; ++j)
          for (Index c = 0; c < d3; ++c) v_block(j, c) = v(b, j0 + j, c);
        for (Index i = 0; i < rows; ++i)
          for (Index j = 0; j < keys; ++j) {
            const float weight = p(b, i0 + i, j0 + j);
            float* o_row = &o(i, 0);
            const float* v_row = &v_block(j, 0);
            for (Index c = 0; c < d3; ++c) o_row[c] += weight * v_row[c];
          }
      }
      for (Index i = 0; i < rows; ++i)
        for (Index c = 0; c < d3; ++c) out(b, i0 + i, c) = o(i, c);
    }
}

}  // namespace

void softmax_matmul(const SoftmaxMatmul<float>& pass, int axis) {
  (void)check_softmax_matmul(pass);
  Tensor<float, 3> p(pass.x.shape());
  softmax(pass.x, p.view(), checked_axis(axis, 3));
  matmul(p.view(), pass.v, pass.out);
}

}  // namespace flash
