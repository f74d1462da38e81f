// Task 2.B: the gradients of attention from what the forward pass left: out and lse. P is computed
// again, for a block of keys and one query at a time, and adds its share to dQ, dK and dV.
//
// The outer loop is over blocks of keys, whose K, V, dK and dV stay at hand while all queries pass
// by; dQ of all queries of a head is summed up beside them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/checks.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash {

template <class Element>
void attention_delta(TensorView<const Element, 4> out, TensorView<const Element, 4> d_out,
                     TensorView<LseType<Element>, 3> delta) {
  using T = LseType<Element>;  // that computes: float for elements of 16 bits
  const auto [batch, heads, queries, head_dim] = out.shape();
  check_view("d_out", d_out, out.shape());
  check_view("out", out, out.shape());
  check_view("delta", delta, {batch, heads, queries});
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index i = 0; i < queries; ++i) {
        // TODO delta of the row: the sum over head_dim of out times d_out (3 lines)
        throw NotYetImplemented("part2.flash_backward");
      }
}

template <class Element>
void flash_attention_backward(const AttentionBackward<Element>& pass, Index block_keys) {
  using T = LseType<Element>;
  const AttentionShape shape = check_attention(pass);
  const auto [q, k, v, out, lse, d_out, d_q, d_k, d_v, options, stream] = pass;
  const T scale = static_cast<T>(attention_scale(options, shape.head_dim));
  check_at_least("block_keys", block_keys, 1);
  block_keys = std::min(block_keys, std::max<Index>(shape.keys, 1));
  const Index d = shape.head_dim;
  constexpr T kInfinity = std::numeric_limits<T>::infinity();

  Tensor<T, 3> delta(shape.of_rows());
  attention_delta<Element>(out, d_out, delta.view());
  // Of one head: each block of keys adds to it, and so many sums would not survive 16 bits.
  Tensor<T, 2> dQ({shape.queries, d});

  // TODO tensors for what you need: all of P and dP of a head at once, or blocks (with
  //   blocks, about 4 lines)

  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h) {
      std::fill_n(dQ.data(), shape.queries * d, T{0});
      // TODO the gradients of one head, dQ in T, d_k and d_v as Elements. For each pair
      //   of a query i and a key j that it sees:
      //     P = exp(scale * q(i) k(j) - lse(i)), and 0 for a query whose lse is -inf        dP = d_out(i) v(j)
      //     dS = P * (dP - delta(i))
      //     d_v(j) += P * d_out(i)        dQ(i) += scale * dS * k(j)        d_k(j) += scale * dS * q(i)
      //   (about 30 lines for all at once, 50 in blocks)
      (void)scale;
      (void)kInfinity;
      throw NotYetImplemented("part2.flash_backward");
      for (Index i = 0; i < shape.queries; ++i)
        for (Index c = 0; c < d; ++c) d_q(b, h, i, c) = static_cast<Element>(dQ(i, c));
    }
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(FlashBackwardTask)
