// Given: standard attention on the GPU, as a framework runs it without a fused kernel: cuBLAS, a
// softmax kernel, and all of P in device memory between the passes. For GPUs only.
#pragma once

#include "common/attention.hpp"
#include "common/half.hpp"

namespace flash {

// out = softmax(scale Q K^T) V and lse, with P (batch, heads, queries, keys) left in `p` for the
// backward pass. T is float, Half or BFloat16; scores and sums are in float32, and P is rounded to
// T. The launches go to pass.stream and do not wait. Extra device memory: none for float; for types
// of 16 bits the scores in float, 4 bytes for each pair of a query and a key.
//
// As common/attention.hpp says, with two exceptions: a NaN in v reaches queries that do not see it
// (0 * NaN), and all tensors but lse need a contiguous last axis and rows that do not overlap.
// Throws ShapeError, ArgumentError, Unsupported for such strides, OutOfMemory, and CudaError.
template <class T>
FLASH_EXPORT void standard_attention_forward_cuda(const AttentionForward<T>& pass,
                                                  TensorView<T, 4> p);

// The gradients, from P: pass.out and pass.lse are not read. Extra device memory: 4 bytes for each
// pair for float, 6 for types of 16 bits.
template <class T>
FLASH_EXPORT void standard_attention_backward_cuda(const AttentionBackward<T>& pass,
                                                   TensorView<const T, 4> p);

}  // namespace flash
