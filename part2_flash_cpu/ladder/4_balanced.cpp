// Step 4 of the ladder: work that comes out even.
//
// What changed since step 3, all in how the work is cut:
// - Forward, a task is as many queries as leave 16 tasks or more, where there are so many panels, so that one head of 512 queries
//   keeps two cores busy to the end. With a causal mask the last queries see the most keys: their tasks come first, and the small
//   ones fill the gaps.
// - Backward, a head is split by keys: a split takes every n-th block of keys, so that each has blocks with many queries and
//   with few, and sums up a d_q of its own. The shares are added in a fixed order. No atomics, and the same bits for any number
//   of threads: the cut follows from the shape alone.
//
// Measured, as in step 1: forward 11 and 12 ms (4 heads of 4096 have tasks enough in step 3 already), backward 142 to 37 ms; 391
// to 1234 GFLOP/s, 55 % of the machine's peak. Beside PyTorch with 2 threads each:
// outputs/reference/intel-xeon-16/csv/torch_comparison.csv.
#include <algorithm>

#include "part2_flash_cpu/ladder/isa.hpp"
#include "part2_flash_cpu/ladder/rungs.hpp"
#include "part2_flash_cpu/ladder/tasks.hpp"

namespace flash::attention_4 {
namespace {

constexpr Index kTasks = 16;

template <class T>
ForwardPlan forward_plan(const AttentionShape& shape, bool causal) {
  const Index panels = shape.batch * shape.heads * shape.queries / register_blocked_kernels<T>().panel;
  return {.query_panels = std::clamp<Index>(panels / kTasks, 1, 4), .block_keys = 96, .last_first = causal};
}

// Splits cost memory, and each one a pass over d_q: as many as make kTasks tasks at most, of blocks as large as that allows.
template <class T>
BackwardPlan backward_plan(const AttentionShape& shape) {
  const Index panels = std::max<Index>(1, shape.keys / register_blocked_kernels<T>().panel);
  const Index splits = std::clamp<Index>(kTasks / (shape.batch * shape.heads), 1, panels);
  return {.splits = splits, .key_panels = std::clamp<Index>(panels / std::max<Index>(2, splits), 1, 4), .block_queries = 64};
}

}  // namespace

template <class T>
void forward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
             TensorView<T, 3> lse, TensorView<T, 4>, const AttentionOptions& options) {
  const AttentionShape shape = check_attention_forward(q, k, v, out, lse);
  forward_in_tasks<T>(register_blocked_kernels<T>(), q, k, v, out, lse, options, forward_plan<T>(shape, options.causal));
}

template <class T>
void backward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<const T, 4> out,
              TensorView<const T, 3> lse, TensorView<const T, 4>, TensorView<const T, 4> d_out, TensorView<T, 4> d_q,
              TensorView<T, 4> d_k, TensorView<T, 4> d_v, const AttentionOptions& options) {
  const AttentionShape shape = check_attention_backward(q, k, v, out, lse, d_out, d_q, d_k, d_v);
  backward_in_tasks<T>(register_blocked_kernels<T>(), q, k, v, out, lse, d_out, d_q, d_k, d_v, options,
                       backward_plan<T>(shape));
}

const AttentionFunctions functions{{forward<float>, backward<float>}, {forward<double>, backward<double>}};

}  // namespace flash::attention_4
