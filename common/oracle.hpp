// The one ground truth: the textbook formula in float64, slow and plain. Every check compares with it.
#pragma once

#include "common/tensor.hpp"

namespace flash {

// softmax(x) along `axis` (0, 1, 2, or -1 for the last), in float64.
//   x (d0, d1, d2) -> (d0, d1, d2)
// A slice of nothing but -inf gives zeros; a NaN makes its slice NaN. Throws ArgumentError for another axis.
template <class T>
FLASH_EXPORT Tensor<double, 3> softmax_oracle(TensorView<const T, 3> x, int axis = -1);

// softmax(x, axis) v in float64.
//   x (batch, d1, d2), v (batch, d2, d3) -> (batch, d1, d3)
// Throws ShapeError when the shapes do not fit.
template <class T>
FLASH_EXPORT Tensor<double, 3> softmax_matmul_oracle(TensorView<const T, 3> x, TensorView<const T, 3> v, int axis = -1);

// softmax(x, axis) |v|: how large the terms are whose sum is the result. Rounding errors are small beside this, even where the
// terms cancel and the result is close to 0.
template <class T>
FLASH_EXPORT Tensor<double, 3> softmax_matmul_magnitude(TensorView<const T, 3> x, TensorView<const T, 3> v, int axis = -1);

// The largest error of softmax_matmul's result that float32 explains, beside softmax_matmul_magnitude(), for scores of at most
// `largest_score` in size. With u = 2^-24, the unit roundoff:
//   exp       4 u for the function, and u |x| for its argument, whether it is rounded as x - m or as x * log2(e)
//   sums      u sqrt(d2) for l and for o: rounding errors of d2 additions, which do not all point the same way
//   rescaling u sqrt(d2 / block_2) for the factors alpha
// in sum u (8 + 2 max|x| + 4 sqrt(d2)). Part 1's CPU solution stays below a third of it (the test "bound" prints its shares).
FLASH_EXPORT double softmax_matmul_bound(Index d2, double largest_score);

}  // namespace flash
