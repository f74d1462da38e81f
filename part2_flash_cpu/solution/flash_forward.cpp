// Task 2.A: attention forward for a block of queries at a time, with the running maximum m, the
// running sum l and the accumulator O of online softmax. Of the scores only a blocks.queries x
// blocks.keys tile ever exists.
//
// Inner loops run over keys or over head_dim, next to each other in memory: there the compiler can
// use vector instructions. For a dot product it would have to change the order of the additions,
// and that is not allowed.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/checks.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash {

template <class Element>
void flash_attention_forward(const AttentionForward<Element>& pass, const AttentionBlocks& blocks) {
  using T = LseType<Element>;  // that computes: float for elements of 16 bits
  const AttentionShape shape = check_attention(pass);
  const auto [q, k, v, out, lse, options, stream] = pass;
  const T scale = static_cast<T>(attention_scale(options, shape.head_dim));
  check_at_least("blocks.queries", blocks.queries, 1);
  check_at_least("blocks.keys", blocks.keys, 1);
  const Index d = shape.head_dim;
  const Index block_q = std::min(blocks.queries, shape.queries),
              block_k = std::min(blocks.keys, std::max<Index>(shape.keys, 1));
  constexpr T kInfinity = std::numeric_limits<T>::infinity();

  Tensor<T, 2> Q({block_q, d}), Kt({d, block_k}),
      V({block_k, d});                      // the blocks; of K the transpose
  Tensor<T, 2> S({block_q, block_k});       // the tile: scores, then P = exp(S - m)
  Tensor<T, 2> O({block_q, d});             // sum of P V, relative to the same m
  Tensor<T, 1> m({block_q}), l({block_q});  // of each row: the largest score; the sum of exp(S - m)

  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h)
      for (Index i0 = 0; i0 < shape.queries; i0 += block_q) {
        const Index rows = std::min(block_q, shape.queries - i0);
        for (Index i = 0; i < rows; ++i)
          for (Index c = 0; c < d; ++c) Q(i, c) = q(b, h, i0 + i, c);

        // BEGIN SOLUTION start the block of queries: m, l and O of rows that have seen no key yet
        //   (3 lines)
        std::fill_n(m.data(), rows, -kInfinity);
        std::fill_n(l.data(), rows, T{0});
        std::fill_n(O.data(), rows * d, T{0});
        // END SOLUTION

        // BEGIN SOLUTION how many keys, from the first on, some query of the block sees: all, or
        //   with options.causal those up to its last query (1 line; shape.visible_keys() knows)
        // STUB const Index keys_seen = shape.keys;
        const Index keys_seen = shape.visible_keys(i0 + rows - 1, options.causal);
        // END SOLUTION

        for (Index j0 = 0; j0 < keys_seen; j0 += block_k) {
          const Index keys = std::min(block_k, keys_seen - j0);
          for (Index j = 0; j < keys; ++j)
            for (Index c = 0; c < d; ++c) {
              Kt(c, j) = k(b, h, j0 + j, c);
              V(j, c) = v(b, h, j0 + j, c);
            }

          for (Index i = 0; i < rows; ++i) {
            T* const S_row = &S(i, 0);
            // BEGIN SOLUTION the mask: how many of the tile's keys, from the first on, query i0 +
            //   i sees; what follows stops there (1 line)
            // STUB const Index visible = keys;
            const Index visible =
                std::clamp<Index>(shape.visible_keys(i0 + i, options.causal) - j0, 0, keys);
            // END SOLUTION

            // BEGIN SOLUTION the scores: S_row[j] = scale * (row i of Q times column j of Kt) for
            //   the `visible` keys (about 6 lines; the keys innermost)
            std::fill_n(S_row, visible, T{0});
            for (Index c = 0; c < d; ++c) {
              const T weight = Q(i, c);
              const T* const Kt_row = &Kt(c, 0);
              for (Index j = 0; j < visible; ++j) S_row[j] += weight * Kt_row[j];
            }
            for (Index j = 0; j < visible; ++j) S_row[j] *= scale;
            // END SOLUTION

            // BEGIN SOLUTION online softmax: the new maximum of row i (mind a row of which only
            //   -inf was seen so far); S_row[j] becomes P(i, j) = exp(S_row[j] - maximum); bring l
            //   and row i of O to the new maximum, and add the tile's sum to l (about 10 lines)
            // STUB throw NotYetImplemented("part2.flash_forward");
            T m_new = m(i);
            for (Index j = 0; j < visible; ++j) m_new = std::fmax(m_new, S_row[j]);
            // exp(-inf - -inf) is NaN: while nothing was visible, measure from 0 and every exp is
            // 0.
            const T reference = m_new == -kInfinity ? T{0} : m_new;
            T sum = 0;
            for (Index j = 0; j < visible; ++j) sum += S_row[j] = std::exp(S_row[j] - reference);
            const T alpha = std::exp(m(i) - reference);
            l(i) = l(i) * alpha + sum;
            m(i) = m_new;
            for (Index c = 0; c < d; ++c) O(i, c) *= alpha;
            // END SOLUTION

            // BEGIN SOLUTION O += P V: row i of O gains S_row[j] times row j of V (about 5 lines;
            //   the columns innermost)
            T* const O_row = &O(i, 0);
            for (Index j = 0; j < visible; ++j) {
              const T weight = S_row[j];
              const T* const V_row = &V(j, 0);
              for (Index c = 0; c < d; ++c) O_row[c] += weight * V_row[c];
            }
            // END SOLUTION
          }
        }

        // BEGIN SOLUTION write the rows: out = O / l, and 0 where no key was visible, as an Element;
        //   lse = m + log(l), which is -inf there (about 6 lines)
        // STUB throw NotYetImplemented("part2.flash_forward");
        for (Index i = 0; i < rows; ++i) {
          for (Index c = 0; c < d; ++c)
            out(b, h, i0 + i, c) = static_cast<Element>(l(i) == 0 ? T{0} : O(i, c) / l(i));
          lse(b, h, i0 + i) = m(i) + std::log(l(i));
        }
        // END SOLUTION
      }
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(FlashForwardTask)
