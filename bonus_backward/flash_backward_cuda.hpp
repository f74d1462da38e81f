// Contract of the bonus: the backward pass of flash attention on a GPU, tiled.
//
// common/attention.hpp has the problem: shapes, mask, scale, and what happens to rows without a key
// and to NaN. All views point to device memory and may have any strides; no alignment is asked of
// them beyond the element's own. Inputs are never written to, and no output overlaps an input or
// another output.
//
//   P = exp(scale Q K^T - lse)     dV = P^T dO     dP = dO V^T     dS = P * (dP - delta)
//   dQ = scale dS K                dK = scale dS^T Q
//
// Source: FlashAttention-2 (Dao 2023, arXiv:2307.08691, section 3.1.2), but in two passes: one
// thread block has a block of keys and sums up their dK and dV, another one a block of queries and
// sums up their dQ. No two thread blocks add to the same number, so there is no race and no atomic
// addition, and the same inputs give the same bits in every run.
//
// Shapes: q, out, d_out, d_q (batch, heads, queries, head_dim); k, v, d_k, d_v (batch, heads, keys,
// head_dim); lse and delta (batch, heads, queries), float32. T is float, Half or BFloat16. Products
// and sums are in float32, whatever T is, and P and dS are not rounded to T. A row whose lse is
// -inf weighs no key: it has a d_q of 0 and no share of d_k and d_v.
//
// All functions enqueue on the stream that they are given, with the pass or beside it, and do not
// wait. They throw ShapeError and ArgumentError as common/attention.hpp does, Unsupported for a
// head_dim above kFlashBackwardMaxHeadDim and for more than 2^31 - 1 queries or keys (delta takes
// any), and CudaError when a launch fails.
#pragma once

#include "common/attention.hpp"
#include "common/half.hpp"
#include "common/task.hpp"

namespace flash {

// The widest head. For a wider one there is plain_attention_backward_cuda()
// (part3_flash_cuda/plain_backward.hpp).
inline constexpr Index kFlashBackwardMaxHeadDim = 256;

// How a kernel is cut up: a thread block owns `own` rows, keys for d_k and d_v and queries for d_q,
// and streams the rows of the other side past them in blocks of `streamed`.
struct FlashBackwardBlocks {
  Index own = 0;
  Index streamed = 0;
};

// The blocks for heads of `head_dim` on the current GPU, in both passes: they own at least 64 rows
// for heads of up to 64, and 16 for wider ones. Smaller ones would load the other side more often.
template <class T>
FlashBackwardBlocks flash_backward_blocks(Index head_dim);

// delta(i) = sum over c of out(i, c) d_out(i, c): of any head_dim.
template <class T>
void flash_backward_delta_cuda(TensorView<const T, 4> out, TensorView<const T, 4> d_out,
                               TensorView<float, 3> delta, Stream stream = {});

// pass.d_k and pass.d_v from lse and delta; out and d_q are not looked at. With `causal`, queries
// that see none of a block's keys are not read. Extra memory: none.
template <class T>
void flash_backward_dk_dv_cuda(const AttentionBackward<T>& pass, TensorView<const float, 3> delta);

// pass.d_q from lse and delta; out, d_k and d_v are not looked at. With `causal`, keys that none of
// a block's queries sees are not read. Extra memory: none.
template <class T>
void flash_backward_dq_cuda(const AttentionBackward<T>& pass, TensorView<const float, 3> delta);

// The gradients of sum(out * d_out) with respect to q, k and v: the three one after another. Extra
// device memory: delta, 4 bytes for each query of each head. Throws OutOfMemory too. Loads are
// coalesced, with few bank conflicts (part1_softmax_matmul/cuda.md, section 5).
template <class T>
void flash_attention_backward_cuda(const AttentionBackward<T>& pass);

// ---- What the task's library exports ------------------------------------------------------------

template <class T>
struct FlashBackwardCudaFunctions {
  FlashBackwardBlocks (*flash_backward_blocks)(Index head_dim) = flash::flash_backward_blocks<T>;
  void (*flash_backward_delta_cuda)(TensorView<const T, 4> out, TensorView<const T, 4> d_out,
                                    TensorView<float, 3> delta,
                                    Stream) = flash::flash_backward_delta_cuda<T>;
  void (*flash_backward_dk_dv_cuda)(const AttentionBackward<T>&, TensorView<const float, 3> delta) =
      flash::flash_backward_dk_dv_cuda<T>;
  void (*flash_backward_dq_cuda)(const AttentionBackward<T>&, TensorView<const float, 3> delta) =
      flash::flash_backward_dq_cuda<T>;
  void (*flash_attention_backward_cuda)(const AttentionBackward<T>&) =
      flash::flash_attention_backward_cuda<T>;
};
struct FlashBackwardCudaTask : ForTypes<FlashBackwardCudaFunctions, float, Half, BFloat16> {
  static constexpr char kId[] = "bonus.flash_backward_cuda";
};

}  // namespace flash
