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

        // TODO start the block of queries: m, l and O of rows that have seen no key yet
        //   (3 lines)

        // TODO how many keys, from the first on, some query of the block sees: all, or
        //   with options.causal those up to its last query (1 line; shape.visible_keys() knows)
        const Index keys_seen = shape.keys;

        for (Index j0 = 0; j0 < keys_seen; j0 += block_k) {
          const Index keys = std::min(block_k, keys_seen - j0);
          for (Index j = 0; j < keys; ++j)
            for (Index c = 0; c < d; ++c) {
              Kt(c, j) = k(b, h, j0 + j, c);
              V(j, c) = v(b, h, j0 + j, c);
            }

          for (Index i = 0; i < rows; ++i) {
            T* const S_row = &S(i, 0);
            // TODO the mask: how many of the tile's keys, from the first on, query i0 +
            //   i sees; what follows stops there (1 line)
            const Index visible = keys;

            // TODO the scores: S_row[j] = scale * (row i of Q times column j of Kt) for
            //   the `visible` keys (about 6 lines; the keys innermost)

            // TODO online softmax: the new maximum of row i (mind a row of which only
            //   -inf was seen so far); S_row[j] becomes P(i, j) = exp(S_row[j] - maximum); bring l
            //   and row i of O to the new maximum, and add the tile's sum to l (about 10 lines)
            throw NotYetImplemented("part2.flash_forward");

            // TODO O += P V: row i of O gains S_row[j] times row j of V (about 5 lines;
            //   the columns innermost)
          }
        }

        // TODO write the rows: out = O / l, and 0 where no key was visible, as an Element;
        //   lse = m + log(l), which is -inf there (about 6 lines)
        throw NotYetImplemented("part2.flash_forward");
      }
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(FlashForwardTask)
