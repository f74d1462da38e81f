// The ladder of the bonus: faster backward passes on a GPU, one numbered file a step. They stand on the solution.
//
// To add a rung: ../../README.md has the steps.
#pragma once

#include "common/attention.hpp"
#include "common/half.hpp"
#include "common/stream.hpp"

namespace flash {

namespace ladder_1_one_pass {

// What flash_attention_backward_cuda() of ../flash_backward_cuda.hpp does, and throws, in one pass over the pairs of queries and keys.
// The order in which thread blocks add to d_q is not fixed: its last bits differ from run to run.
// Extra device memory: delta, and d_q in float32 with head_dim rounded up to 64, 128 or 256.
template <class T>
FLASH_EXPORT void flash_attention_backward_cuda(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                                TensorView<const T, 4> out, TensorView<const float, 3> lse,
                                                TensorView<const T, 4> d_out, TensorView<T, 4> d_q, TensorView<T, 4> d_k,
                                                TensorView<T, 4> d_v, const AttentionOptions& options = {}, Stream stream = {});

}  // namespace ladder_1_one_pass

}  // namespace flash
