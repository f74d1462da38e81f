// Task D.A: merges the parts of a softmax, on the CPU.
#include <cmath>

#include "bonus_decode/flash_decode.hpp"
#include "common/checks.hpp"

namespace flash {

void merge_parts(TensorView<const float, 3> part_out, TensorView<const float, 2> part_lse,
                 TensorView<float, 2> out, TensorView<float, 1> lse) {
  const Index parts = part_out.extent(0), rows = part_out.extent(1), head_dim = part_out.extent(2);
  check_at_least("rows", rows, 1);
  check_at_least("head_dim", head_dim, 1);
  check_view("part_out", part_out, {parts, rows, head_dim});
  check_view("part_lse", part_lse, {parts, rows});
  check_view("out", out, {rows, head_dim});
  check_view("lse", lse, {rows});

  // BEGIN SOLUTION for each row: the largest lse of its parts, the weights exp(lse_s - largest) and
  //   their sum, the weighted mean of the parts' out, and lse. Parts with an lse of -inf are left
  //   out (about 15 lines)
  // STUB throw NotYetImplemented("decode.merge_parts");
  for (Index row = 0; row < rows; ++row) {
    float m = -INFINITY, l = 0;
    for (Index s = 0; s < parts; ++s) m = std::fmax(m, part_lse(s, row));
    for (Index c = 0; c < head_dim; ++c) out(row, c) = 0;
    for (Index s = 0; s < parts; ++s) {
      if (part_lse(s, row) == -INFINITY) continue;
      const float weight = std::exp(part_lse(s, row) - m);
      l += weight;
      for (Index c = 0; c < head_dim; ++c) out(row, c) += weight * part_out(s, row, c);
    }
    for (Index c = 0; c < head_dim && l != 0; ++c) out(row, c) /= l;
    lse(row) = m + std::log(l);
  }
  // END SOLUTION
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(MergePartsTask)
