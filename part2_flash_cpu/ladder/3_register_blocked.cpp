// Step 3 of the ladder: a register-blocked micro-kernel, one SIMD lane a query.
//
// What changed since step 2: there, a product goes row by row, and each vector that is loaded serves one multiply-add. Here a
// tile of 24 accumulators (12 where there are 16 registers) stays in registers through a whole product (per_isa/tile.hpp), and
// 11 loads serve 24 multiply-adds. Lanes are queries (backward: keys), not columns or keys of one query: scores, maxima, sums
// and exponentials of a vector of queries go side by side, and nothing has to be added up across a vector.
//
// The work is cut much as PyTorch's CPU kernel cuts it: forward a task for some of a head's queries (192 with AVX-512 in
// float), in their order; backward a task for each head.
//
// Measured, as in step 1: forward 26 to 11 ms, backward 414 to 142 ms; 137 to 391 GFLOP/s.
#include "part2_flash_cpu/ladder/isa.hpp"
#include "part2_flash_cpu/ladder/rungs.hpp"
#include "part2_flash_cpu/ladder/tasks.hpp"

namespace flash::attention_3 {

template <class T>
void forward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
             TensorView<T, 3> lse, TensorView<T, 4>, const AttentionOptions& options) {
  forward_in_tasks<T>(register_blocked_kernels<T>(), q, k, v, out, lse, options,
                      {.query_panels = 4, .block_keys = 96, .last_first = false});
}

template <class T>
void backward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<const T, 4> out,
              TensorView<const T, 3> lse, TensorView<const T, 4>, TensorView<const T, 4> d_out, TensorView<T, 4> d_q,
              TensorView<T, 4> d_k, TensorView<T, 4> d_v, const AttentionOptions& options) {
  backward_in_tasks<T>(register_blocked_kernels<T>(), q, k, v, out, lse, d_out, d_q, d_k, d_v, options,
                       {.splits = 1, .key_panels = 4, .block_queries = 64});
}

const AttentionFunctions functions{{forward<float>, backward<float>}, {forward<double>, backward<double>}};

}  // namespace flash::attention_3
