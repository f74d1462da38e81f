// Given: a backward pass on the GPU that is not tiled. It is what the registry gives the forward kernel until somebody
// writes a better one, and what a better one is compared with.
//
// The formulas are common/oracle.hpp's, P computed again from lse. S, then P, and dP, then dS, are two matrices (batch, heads,
// queries, keys) of float in device memory: quadratic in the sequence, so it is this pass that runs out of memory first.
#pragma once

#include "common/attention.hpp"
#include "common/half.hpp"
#include "common/stream.hpp"

namespace flash {

// The gradients of sum(out * d_out) with respect to q, k and v. Shapes, strides, causal and rows without a key as
// common/attention.hpp says; all views point to device memory. T is float, Half or BFloat16, all sums are in float32. The same
// inputs give the same bits in every run. The launches go to `stream` and do not wait.
// Extra device memory: 8 bytes for each pair of a query and a key, of all heads together.
// Throws ShapeError and ArgumentError as common/attention.hpp does, OutOfMemory, and CudaError when a launch fails.
template <class T>
FLASH_EXPORT void plain_attention_backward_cuda(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                                TensorView<const T, 4> out, TensorView<const float, 3> lse,
                                                TensorView<const T, 4> d_out, TensorView<T, 4> d_q, TensorView<T, 4> d_k,
                                                TensorView<T, 4> d_v, const AttentionOptions& options = {},
                                                Stream stream = {});

}  // namespace flash
