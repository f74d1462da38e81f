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

}  // namespace flash
