// Rung 4: balance. All threads get equal work, also under a causal mask.
//
// What changed since rung 3 is only how the work is cut into tasks:
// - Forward: a task has so many queries that there are at least 16 tasks, if there are 16 panels.
//   So one head of 512 queries keeps two cores busy to the end. With a causal mask the last queries
//   see the most keys: their tasks come first, and the small tasks fill the gaps at the end.
// - Backward: a head is split by keys. A split takes every n-th block of keys: it has blocks
//   that many queries see and blocks that few see. It adds up a d_q of its own, and these shares
//   are added in a fixed order, without atomic additions. The cut follows from the shape alone, so
//   that the result has the same bits for any number of threads.
//
// Measured, as in rung 1: forward 11 and 12 ms (4 heads of 4096 queries have enough tasks in rung 3
// already), backward 122 to 38 ms; 453 to 1214 GFLOP/s, 54 % of the machine's peak.
#include <algorithm>

#include "common/registry.hpp"
#include "part2_flash_cpu/ladder/3_register_blocked.hpp"
#include "part2_flash_cpu/ladder/tasks.hpp"

namespace flash::balanced {
namespace {

constexpr Index kTasks = 16;

template <class T>
ForwardPlan forward_plan(const AttentionShape& shape, bool causal) {
  const Index panels =
      shape.batch * shape.heads * shape.queries / register_blocked_kernels().of<LseType<T>>().panel;
  return {.query_panels = std::clamp<Index>(panels / kTasks, 1, 4),
          .block_keys = 96,
          .last_first = causal};
}

// Splits cost memory, and each one a pass over d_q: as many as make kTasks tasks at most, of blocks
// as large as that allows.
template <class T>
BackwardPlan backward_plan(const AttentionShape& shape) {
  const Index panels =
      std::max<Index>(1, shape.keys / register_blocked_kernels().of<LseType<T>>().panel);
  const Index splits = std::clamp<Index>(kTasks / (shape.batch * shape.heads), 1, panels);
  return {.splits = splits,
          .key_panels = std::clamp<Index>(panels / std::max<Index>(2, splits), 1, 4),
          .block_queries = 64};
}

}  // namespace

FLASH_ENTER(registry, name) {
  const auto forward = []<class T>(const AttentionForward<T>& pass) {
    forward_in_tasks(pass, register_blocked_kernels().of<LseType<T>>(),
                     forward_plan<T>(check_attention(pass), pass.options.causal));
  };
  const auto backward = []<class T>(const AttentionBackward<T>& pass) {
    backward_in_tasks(pass, register_blocked_kernels().of<LseType<T>>(),
                      backward_plan<T>(check_attention(pass)));
  };
  registry.forward.add({.name = name, .run = {forward, forward, forward, forward}});
  registry.backward.add({.name = name, .run = {backward, backward, backward, backward}});
}

}  // namespace flash::balanced
