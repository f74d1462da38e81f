// Contract of part 2: attention on the CPU, forward and backward, with and without the queries x
// keys matrix in memory.
//
// common/attention.hpp has the problem (shapes, mask, scale, rows without a key, NaN) and the
// passes. Everything here is for T = float, double, Half and BFloat16. It computes in LseType<T>:
// in T, or in float where T has 16 bits, and then rounds each result once. It reads its inputs and
// never writes them; no output overlaps an input or another output. Views point to host memory and
// may have any strides; the pass's stream is not used. Throws ShapeError and ArgumentError as
// common/attention.hpp does, and ArgumentError for a block size below 1.
#pragma once

#include "common/attention.hpp"
#include "common/half.hpp"
#include "common/task.hpp"

namespace flash {

// ---- Given: standard attention ------------------------------------------------------------------
//
// The textbook's formulas, one after the other, with all of P in memory: batch * heads * queries *
// keys elements, which the forward pass leaves in `p` (batch, heads, queries, keys) for the
// backward pass. The backward pass reads p in place of the pass's out and lse.

template <class T>
FLASH_EXPORT void standard_attention_forward(const AttentionForward<T>& pass,
                                             TensorView<LseType<T>, 4> p);

template <class T>
FLASH_EXPORT void standard_attention_backward(const AttentionBackward<T>& pass,
                                              TensorView<const LseType<T>, 4> p);

// ---- Task 2.A: the flash forward pass -----------------------------------------------------------

// Sizes of the blocks in which queries and keys are taken. Neither has to divide anything.
struct AttentionBlocks {
  Index queries = 16;
  Index keys = 16;
};

// out = softmax(scale Q K^T) V, and lse, for one block of queries at a time. All keys that the
// block sees are streamed past it in blocks. With `causal`, blocks of keys behind the last query of
// the block are not computed. Algorithm: FlashAttention-2 (Dao 2023, arXiv:2307.08691, algorithm
// 1). Extra memory: a few blocks, O((blocks.queries + blocks.keys) * head_dim + blocks.queries *
// blocks.keys), whatever the sequence length is.
template <class T>
void flash_attention_forward(const AttentionForward<T>& pass, const AttentionBlocks& blocks = {});

// ---- Task 2.B: the flash backward pass ----------------------------------------------------------

// delta(b, h, i) = sum over c of out(b, h, i, c) * d_out(b, h, i, c). It is subtracted from every
// dP of the row, because softmax normalises the row.
template <class T>
void attention_delta(TensorView<const T, 4> out, TensorView<const T, 4> d_out,
                     TensorView<LseType<T>, 3> delta);

// The gradients of sum(out * d_out) with respect to q, k and v. P is computed again from lse, so
// that nothing of size queries x keys is kept between the passes. Formulas: common/oracle.hpp. In
// blocks of `block_keys` keys the extra memory is delta, d_q of one head in LseType<T>, and a few
// blocks. A function that computes all of P does not use block_keys, and is right in all but its
// memory.
template <class T>
void flash_attention_backward(const AttentionBackward<T>& pass, Index block_keys = 16);

// ---- What the tasks' libraries export -----------------------------------------------------------

template <class T>
struct FlashForwardFunctions {
  void (*flash_attention_forward)(const AttentionForward<T>&,
                                  const AttentionBlocks&) = flash::flash_attention_forward<T>;
};
struct FlashForwardTask : ForTypes<FlashForwardFunctions, float, double, Half, BFloat16> {
  static constexpr char kId[] = "part2.flash_forward";
};

template <class T>
struct FlashBackwardFunctions {
  void (*attention_delta)(TensorView<const T, 4> out, TensorView<const T, 4> d_out,
                          TensorView<LseType<T>, 3> delta) = flash::attention_delta<T>;
  void (*flash_attention_backward)(const AttentionBackward<T>&,
                                   Index block_keys) = flash::flash_attention_backward<T>;
};
struct FlashBackwardTask : ForTypes<FlashBackwardFunctions, float, double, Half, BFloat16> {
  static constexpr char kId[] = "part2.flash_backward";
};

}  // namespace flash
