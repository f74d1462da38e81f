// Online softmax on the CPU, row by row: one pass finds the maximum and the sum together.
#include "part1_softmax_matmul/online_softmax.hpp"

#include <cmath>
#include <limits>

#include "common/checks.hpp"

namespace flash {

void online_softmax(TensorView<const float, 2> x, TensorView<float, 2> out) {
  check_elementwise_shapes(x.shape(), out.shape());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();

  for (Index i = 0; i < x.extent(0); ++i) {
    float m = -kInfinity;  // the largest score so far
    float l = 0;           // sum of exp(score - m) over the scores so far
    for (Index j = 0; j < x.extent(1); ++j) {
      const float score = x(i, j);
      if (score == -kInfinity) continue;  // a masked column; exp(-inf - -inf) would be NaN
      const float m_new = std::fmax(m, score);
      l = l * std::exp(m - m_new) +
          std::exp(score - m_new);  // what was summed relative to m becomes relative to m_new
      m = m_new;
    }
    for (Index j = 0; j < x.extent(1); ++j) out(i, j) = l == 0 ? 0 : std::exp(x(i, j) - m) / l;
  }
}

}  // namespace flash
