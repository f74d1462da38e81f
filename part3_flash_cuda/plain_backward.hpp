// Given: a backward pass on the GPU that is not tiled, for any head_dim. It is what the forward
// kernel is measured with until a better one is written, and what a better one is compared with.
//
// The formulas are common/oracle.hpp's, P computed again from lse. S, then P, and dP, then dS, are
// two matrices (batch, heads, queries, keys) of float in device memory: quadratic in the sequence,
// so that it is this pass that runs out of memory first.
#pragma once

#include "common/attention.hpp"
#include "common/half.hpp"

namespace flash {

// d_q, d_k and d_v become the gradients of sum(out * d_out). Shapes, strides, causal and rows
// without a key as common/attention.hpp says; all views point to device memory. T is float, Half or
// BFloat16, all sums are in float32. The same inputs give the same bits in every run. The launches
// go to pass.stream and do not wait. Extra device memory: 8 bytes for each pair of a query and a
// key, of all heads together. Throws ShapeError and ArgumentError as common/attention.hpp does,
// OutOfMemory, and CudaError when a launch fails.
template <class T>
FLASH_EXPORT void plain_attention_backward_cuda(const AttentionBackward<T>& pass);

}  // namespace flash
