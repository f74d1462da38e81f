// Task 1.A on the CPU: softmax(X) V for a block of rows at a time, with the running maximum and sum
// of online softmax and one accumulator o. Of softmax(X) only a block_1 x block_2 tile ever exists.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/checks.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {

void fused_softmax_matmul(const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks& blocks) {
  const auto [x, v, out, stream] = pass;
  const auto [batch, d1, d2, d3] = check_softmax_matmul(pass);
  check_at_least("block_1", blocks.block_1, 1);
  check_at_least("block_2", blocks.block_2, 1);
  const Index block_1 = std::min(blocks.block_1, d1);
  const Index block_2 = std::clamp<Index>(d2, 1, blocks.block_2);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();

  Tensor<float, 1> m({block_1});           // of each row: the largest score so far
  Tensor<float, 1> l({block_1});           // of each row: the sum of exp(score - m)
  Tensor<float, 2> p({block_1, block_2});  // exp(score - m), not yet divided by l
  Tensor<float, 2> v_block(
      {block_2, d3});                 // the block of V, its rows contiguous whatever v's strides
  Tensor<float, 2> o({block_1, d3});  // sum of p * v, relative to the same m

  for (Index b = 0; b < batch; ++b)
    for (Index i0 = 0; i0 < d1; i0 += block_1) {
      const Index rows = std::min(block_1, d1 - i0);

      // TODO start the block of rows: m, l and o of a row that has seen no key yet (3
      //   lines)

      for (Index j0 = 0; j0 < d2; j0 += block_2) {
        const Index keys = std::min(block_2, d2 - j0);

        for (Index j = 0; j < keys; ++j)
          for (Index c = 0; c < d3; ++c) v_block(j, c) = v(b, j0 + j, c);

        for (Index i = 0; i < rows; ++i) {
          // TODO the tile of P for row i0 + i: its new maximum (mind a row of which
          //   only -inf was seen so far), then p(i, j) for each of the `keys` keys; bring l and
          //   o(i, :) to the new maximum, and add the tile's sum to l (about 12 lines)
          throw NotYetImplemented("part1.fused_cpu");
        }

        // TODO O += P V for the tile: row i of o gains p(i, j) times row j of v_block
        //   (about 5 lines; the columns innermost, so that the compiler can use vector
        //   instructions)
      }

      // TODO write the rows: out = o / l, and 0 where no key was visible (3 lines)
      throw NotYetImplemented("part1.fused_cpu");
    }
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(FusedCpuTask)
