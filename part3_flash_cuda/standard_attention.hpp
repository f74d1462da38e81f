// Given: standard attention on the GPU, as a framework runs it without a fused kernel: cuBLAS, a softmax kernel, and all of P in
// device memory between the passes. For GPUs only.
#pragma once

#include "common/attention.hpp"
#include "common/half.hpp"
#include "common/stream.hpp"

namespace flash {

// out = softmax(scale Q K^T) V, with P (batch, heads, queries, keys) left in `p` for the backward pass, and lse in float32. T is
// float, Half or BFloat16; scores and sums are in float32, and P is rounded to T. The launches go to `stream` and do not wait.
// Extra device memory: none for float; for types of 16 bits the scores in float, 4 bytes for each pair of a query and a key.
//
// What common/attention.hpp says, but for two things: a NaN in v reaches queries that do not see it (0 * NaN), and q, k, v and
// out need a contiguous last axis and rows that do not overlap. Throws ShapeError, ArgumentError, Unsupported for such strides,
// OutOfMemory, and CudaError.
template <class T>
FLASH_EXPORT void standard_attention_forward_cuda(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                                  TensorView<T, 4> out, TensorView<float, 3> lse, TensorView<T, 4> p,
                                                  const AttentionOptions& options = {}, Stream stream = {});

// The gradients of sum(out * d_out), from P. Extra device memory: 4 bytes for each pair for float, 6 for types of 16 bits.
template <class T>
FLASH_EXPORT void standard_attention_backward_cuda(TensorView<const T, 4> q, TensorView<const T, 4> k,
                                                   TensorView<const T, 4> v, TensorView<const T, 4> p,
                                                   TensorView<const T, 4> d_out, TensorView<T, 4> d_q, TensorView<T, 4> d_k,
                                                   TensorView<T, 4> d_v, const AttentionOptions& options = {},
                                                   Stream stream = {});

}  // namespace flash
