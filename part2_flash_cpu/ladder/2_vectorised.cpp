// Step 2 of the ladder: vectors.
//
// What changed since step 1: the innermost loops are written in vectors (per_isa/vectorised.cpp), as wide as the processor has
// them, chosen at the first call. Where scores are made, a lane is a key: the dot products of a query with 4 vectors of keys
// stay in registers over all of head_dim, where the solution loads and stores its row of scores for each column. Where rows are
// summed up (O, dQ, dK, dV), a lane is a column. Only a row's maximum and its sum go across the lanes, once a block of keys.
//
// exp is a polynomial (per_isa/exp2.hpp), a vector at a time, where std::exp takes one number after the other. And a task is
// some of a head's queries (192 with AVX-512 in float), so that one head has work for many threads; backward, a task is still
// a head. Keys are taken kernels.panel at a time, whatever block_keys says.
//
// Measured, as in step 1: forward 407 to 26 ms, backward 838 to 414 ms; 48 to 137 GFLOP/s. Backward, each pair of a query and a
// key still loads and stores the rows of dK and dV that it adds to, and 4 heads keep 4 cores busy.
#include "part2_flash_cpu/ladder/isa.hpp"
#include "part2_flash_cpu/ladder/rungs.hpp"
#include "part2_flash_cpu/ladder/tasks.hpp"

namespace flash::attention_2 {

template <class T>
void forward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
             TensorView<T, 3> lse, TensorView<T, 4>, const AttentionOptions& options) {
  forward_in_tasks<T>(vectorised_kernels<T>(), q, k, v, out, lse, options,
                      {.query_panels = 3, .block_keys = 64, .last_first = false});
}

template <class T>
void backward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<const T, 4> out,
              TensorView<const T, 3> lse, TensorView<const T, 4>, TensorView<const T, 4> d_out, TensorView<T, 4> d_q,
              TensorView<T, 4> d_k, TensorView<T, 4> d_v, const AttentionOptions& options) {
  backward_in_tasks<T>(vectorised_kernels<T>(), q, k, v, out, lse, d_out, d_q, d_k, d_v, options,
                       {.splits = 1, .key_panels = 1, .block_queries = 64});
}

const AttentionFunctions functions{{forward<float>, backward<float>}, {forward<double>, backward<double>}};

}  // namespace flash::attention_2
