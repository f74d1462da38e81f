// Contract of task 1.A and of the unfused function beside it: softmax(X) V, with and without the d1 x d2 matrix in memory.
//
// Shapes, the same everywhere in this file:
//   x    (batch, d1, d2)   scores: row i of batch b is x(b, i, :)
//   v    (batch, d2, d3)   values
//   out  (batch, d1, d3)   out(b, i, c) = sum_j softmax(x(b, i, :))_j * v(b, j, c)
//
// All float32, accumulated in float32. Any strides; `out` overlaps neither input. Inputs are never written to.
// d2 = 0 gives zeros; every other extent must be at least 1. Of the scores:
//   -inf  is a masked key: its weight is 0. A row of nothing but -inf gives a row of zeros.
//   NaN   makes the row that holds it NaN. A NaN in v reaches the rows of its batch, in its column.
//
// Throws ShapeError when the shapes do not fit, ArgumentError for a block size below 1.
#pragma once

#include "common/stream.hpp"
#include "common/tensor.hpp"

namespace flash {

// ---- Given: the unfused function -----------------------------------------------------------------------------------------

// Softmax along `axis` (0, 1, 2, or -1 for the last), then the product, with the whole softmax held in between:
// batch * d1 * d2 floats of extra memory. On the CPU a blocked product.
FLASH_EXPORT void softmax_matmul(TensorView<const float, 3> x, TensorView<const float, 3> v, TensorView<float, 3> out,
                                 int axis = -1);

// The same on a GPU: a softmax kernel, then cuBLAS in full float32. Views point to device memory. Throws Unsupported unless the
// last axis of v and of out is contiguous (cuBLAS takes one leading dimension, and no other stride).
FLASH_EXPORT void softmax_matmul_cuda(TensorView<const float, 3> x, TensorView<const float, 3> v, TensorView<float, 3> out,
                                      int axis = -1, Stream stream = {});

// ---- Task 1.A: the fused function ----------------------------------------------------------------------------------------
//
// Walks over the keys in blocks of block_2 for block_1 rows at a time, and never holds more of softmax(X) than one
// block_1 x block_2 tile. Algorithm: online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867) with the accumulator of
// FlashAttention (Dao et al. 2022, arXiv:2205.14135, algorithm 1).
//
// Extra memory on the host: a few blocks, O(block_1 * (block_2 + d3)). On the device: none.

// On the CPU. Any block sizes from 1.
FLASH_EXPORT void fused_softmax_matmul(TensorView<const float, 3> x, TensorView<const float, 3> v, TensorView<float, 3> out,
                                       Index block_1 = 16, Index block_2 = 16);

// Columns of `out` that one thread block of the CUDA kernel accumulates at a time: 256. A wider d3 is cut into chunks, and
// each chunk reads X again.
inline constexpr Index kFusedChunk = 256;

// On a GPU: one thread block owns a batch index, block_1 rows and a chunk of columns. Views point to device memory; the launch
// goes to `stream` and does not wait. Throws Unsupported unless each block size is 16, 32 or 64 (the compiled ones), and
// CudaError when the launch fails.
FLASH_EXPORT void fused_softmax_matmul_cuda(TensorView<const float, 3> x, TensorView<const float, 3> v,
                                            TensorView<float, 3> out, Index block_1 = 16, Index block_2 = 16,
                                            Stream stream = {});

}  // namespace flash
