// Contract of part 2: attention on the CPU, forward and backward, with and without the queries x keys matrix in memory.
//
// common/attention.hpp has the problem: shapes, mask, scale, and what happens to rows without a key and to NaN. Everything here is
// for T = float and double, computes in T, reads its inputs and never writes them; no output overlaps an input or another output. Views
// may have any strides. Throws ShapeError and ArgumentError as common/attention.hpp does, and ArgumentError for a block size below 1.
#pragma once

#include "common/attention.hpp"

namespace flash {

// ---- Given: standard attention ---------------------------------------------------------------------------------------------------
//
// The textbook's formulas, one after the other, with all of P in memory: batch * heads * queries * keys elements, which the forward
// pass leaves in `p` (batch, heads, queries, keys) for the backward pass.

template <class T>
FLASH_EXPORT void standard_attention_forward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                             TensorView<T, 4> out, TensorView<T, 4> p, const AttentionOptions& options = {});

template <class T>
FLASH_EXPORT void standard_attention_backward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                              TensorView<const T, 4> p, TensorView<const T, 4> d_out, TensorView<T, 4> d_q,
                                              TensorView<T, 4> d_k, TensorView<T, 4> d_v, const AttentionOptions& options = {});

// ---- Task 2.A: the flash forward pass --------------------------------------------------------------------------------------------

// Sizes of the blocks in which queries and keys are taken. Neither has to divide anything.
struct AttentionBlocks {
  Index queries = 16;
  Index keys = 16;
};

// out = softmax(scale Q K^T) V, and lse, for a block of queries at a time, past which all keys that it sees are streamed in blocks. With
// `causal`, blocks of keys past the last query of the block are not computed.
// Algorithm: FlashAttention-2 (Dao 2023, arXiv:2307.08691, algorithm 1).
// Extra memory: a few blocks, O((blocks.queries + blocks.keys) * head_dim + blocks.queries * blocks.keys), whatever the sequence is.
template <class T>
FLASH_EXPORT void flash_attention_forward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                          TensorView<T, 4> out, TensorView<T, 3> lse, const AttentionOptions& options = {},
                                          const AttentionBlocks& blocks = {});

// ---- Task 2.B: the flash backward pass -------------------------------------------------------------------------------------------

// delta(b, h, i) = sum over c of out(b, h, i, c) * d_out(b, h, i, c): what the normalisation of softmax takes from every dP of the row.
template <class T>
FLASH_EXPORT void attention_delta(TensorView<const T, 4> out, TensorView<const T, 4> d_out, TensorView<T, 3> delta);

// The gradients of sum(out * d_out) with respect to q, k and v. `out` and `lse` are what the forward pass gave. P is computed again from
// lse, so that nothing of size queries x keys is kept between the passes. Formulas: common/oracle.hpp.
// Whether all of P is computed at once or in blocks is left open. In blocks of `block_keys` keys the extra memory is delta and a few
// blocks; who computes all of P has no use for block_keys.
template <class T>
FLASH_EXPORT void flash_attention_backward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                           TensorView<const T, 4> out, TensorView<const T, 3> lse, TensorView<const T, 4> d_out,
                                           TensorView<T, 4> d_q, TensorView<T, 4> d_k, TensorView<T, 4> d_v,
                                           const AttentionOptions& options = {}, Index block_keys = 16);

}  // namespace flash
