// Given, worked through: softmax in one pass over the scores. Task 1.A starts from it.
//
//   x    (rows, columns)   scores
//   out  (rows, columns)   out(i, j) = exp(x(i, j) - m(i)) / sum_k exp(x(i, k) - m(i)),
//                          where m(i) = max_k x(i, k)
//
// float32, any strides; x and out may be the same tensor. -inf is a masked column (weight 0), a row
// of nothing but -inf gives zeros, a NaN makes its row NaN. Throws ShapeError when the shapes
// differ or an extent is 0.
// Source: Milakov and Gimelshein 2018, arXiv:1805.02867, algorithm 3.
#pragma once

#include "common/stream.hpp"
#include "common/tensor.hpp"

namespace flash {

FLASH_EXPORT void online_softmax(TensorView<const float, 2> x, TensorView<float, 2> out);

// On a GPU, one warp a row. Views point to device memory; the launch goes to `stream` and does not
// wait.
FLASH_EXPORT void online_softmax_cuda(TensorView<const float, 2> x, TensorView<float, 2> out,
                                      Stream stream = {});

}  // namespace flash
