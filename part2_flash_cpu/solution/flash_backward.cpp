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
        // BEGIN SOLUTION delta of the row: the sum over head_dim of out times d_out (3 lines)
        // STUB throw NotYetImplemented("part2.flash_backward");
        T sum = 0;
        for (Index c = 0; c < head_dim; ++c) sum += out(b, h, i, c) * d_out(b, h, i, c);
        delta(b, h, i) = sum;
        // END SOLUTION
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

  // BEGIN SOLUTION tensors for what you need: all of P and dP of a head at once, or blocks (with
  //   blocks, about 4 lines)
  Tensor<T, 2> K({block_keys, d}), Kt({d, block_keys}),
      Vt({d, block_keys});  // the blocks of K and V; t: transposed
  Tensor<T, 2> dK({block_keys, d}), dV({block_keys, d});
  Tensor<T, 1> Q({d}), dO({d}), P({block_keys}), dP({block_keys});  // a row of each
  // END SOLUTION

  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h) {
      std::fill_n(dQ.data(), shape.queries * d, T{0});
      // BEGIN SOLUTION the gradients of one head, dQ in T, d_k and d_v as Elements. For each pair
      //   of a query i and a key j that it sees:
      //     P = exp(scale * q(i) k(j) - lse(i)), and 0 for a query whose lse is -inf        dP = d_out(i) v(j)
      //     dS = P * (dP - delta(i))
      //     d_v(j) += P * d_out(i)        dQ(i) += scale * dS * k(j)        d_k(j) += scale * dS * q(i)
      //   (about 30 lines for all at once, 50 in blocks)
      // STUB (void)scale;
      // STUB (void)kInfinity;
      // STUB throw NotYetImplemented("part2.flash_backward");
      for (Index j0 = 0; j0 < shape.keys; j0 += block_keys) {
        const Index keys = std::min(block_keys, shape.keys - j0);
        for (Index j = 0; j < keys; ++j)
          for (Index c = 0; c < d; ++c) {
            K(j, c) = Kt(c, j) = k(b, h, j0 + j, c);
            Vt(c, j) = v(b, h, j0 + j, c);
          }
        std::fill_n(dK.data(), keys * d, T{0});
        std::fill_n(dV.data(), keys * d, T{0});

        // The first query that sees key j0 is query j0.
        for (Index i = options.causal ? j0 : 0; i < shape.queries; ++i) {
          if (lse(b, h, i) == -kInfinity) continue;  // it weighs no key
          const Index visible = std::min(keys, shape.visible_keys(i, options.causal) - j0);
          for (Index c = 0; c < d; ++c) {
            Q(c) = q(b, h, i, c);
            dO(c) = d_out(b, h, i, c);
          }
          std::fill_n(P.data(), visible, T{0});
          std::fill_n(dP.data(), visible, T{0});
          for (Index c = 0; c < d; ++c) {
            const T q_c = Q(c), dO_c = dO(c);
            const T *const Kt_row = &Kt(c, 0), *const Vt_row = &Vt(c, 0);
            for (Index j = 0; j < visible; ++j) {
              P.data()[j] += q_c * Kt_row[j];
              dP.data()[j] += dO_c * Vt_row[j];
            }
          }
          for (Index j = 0; j < visible; ++j) P(j) = std::exp(scale * P(j) - lse(b, h, i));
          T* const dQ_row = &dQ(i, 0);
          for (Index j = 0; j < visible; ++j) {
            const T p = P(j), dS = scale * p * (dP(j) - delta(b, h, i));
            T *const dV_row = &dV(j, 0), *const dK_row = &dK(j, 0);
            const T* const K_row = &K(j, 0);
            // One loop for each sum: all three in one need more checks that rows do not overlap
            // than the compiler makes, and then it uses no vectors, and this pass takes 2.3 times
            // as long (g++ 12).
            for (Index c = 0; c < d; ++c) dV_row[c] += p * dO.data()[c];
            for (Index c = 0; c < d; ++c) dK_row[c] += dS * Q.data()[c];
            for (Index c = 0; c < d; ++c) dQ_row[c] += dS * K_row[c];
          }
        }

        for (Index j = 0; j < keys; ++j)
          for (Index c = 0; c < d; ++c) {
            d_k(b, h, j0 + j, c) = static_cast<Element>(dK(j, c));
            d_v(b, h, j0 + j, c) = static_cast<Element>(dV(j, c));
          }
      }
      // END SOLUTION
      for (Index i = 0; i < shape.queries; ++i)
        for (Index c = 0; c < d; ++c) d_q(b, h, i, c) = static_cast<Element>(dQ(i, c));
    }
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(FlashBackwardTask)
