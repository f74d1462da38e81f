// Attention by the kernels of per_isa/, cut into tasks for threads. The rungs differ in their
// kernels and in how they cut.
#pragma once

#include "common/attention.hpp"
#include "part2_flash_cpu/ladder/per_isa/kernels.hpp"

namespace flash {

struct ForwardPlan {
  Index query_panels;  // of a task; a panel is kernels.panel queries
  Index block_keys;    // keys that pass by at a time
  bool last_first;  // the last blocks of queries, which see the most keys under a causal mask, are
                    // begun first
};

struct BackwardPlan {
  Index splits;  // tasks of a head: each takes every splits-th block of keys, and sums up a d_q of
                 // its own
  Index key_panels;     // of a block of keys
  Index block_queries;  // queries that pass by at a time
};

// Extra memory: a few blocks for each thread, which it keeps for the next call. Tensors whose rows
// are not contiguous are copied, and those of 16 bits, as float.
template <class T>
void forward_in_tasks(const AttentionForward<T>& pass, const Kernels<LseType<T>>& kernels,
                      const ForwardPlan& plan);

// Extra memory: as above, and d_q once for each split with three numbers a query, which the calling
// thread keeps.
template <class T>
void backward_in_tasks(const AttentionBackward<T>& pass, const Kernels<LseType<T>>& kernels,
                       const BackwardPlan& plan);

}  // namespace flash
