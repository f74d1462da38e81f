// Given: the checks of arguments that the launchers of the backward pass share.
#pragma once

#include <limits>
#include <string>
#include <utility>

#include "bonus_backward/flash_backward_cuda.hpp"
#include "common/checks.hpp"
#include "common/cuda/configurations.hpp"

namespace flash::backward {

// Why the kernels do not take a problem, in words; "" when they take it. Inside a head they count
// rows with 32 bits.
inline std::string why_not(const AttentionShape& shape) {
  std::string why = why_above("head_dim", shape.head_dim, kFlashBackwardMaxHeadDim);
  for (const auto& [name, rows] : {std::pair{"queries", shape.queries}, {"keys", shape.keys}})
    if (why.empty()) why = why_above(name, rows, std::numeric_limits<int>::max());
  return why;
}

// Checks the inputs that the passes for d_k and d_v, and for d_q, have both.
template <class T>
AttentionShape check_inputs(const AttentionBackward<T>& pass, TensorView<const float, 3> delta) {
  const AttentionShape shape = attention_shape(pass.q.shape(), pass.k.shape());
  check_view("q", pass.q, shape.of_queries());
  check_view("k", pass.k, shape.of_keys());
  check_view("v", pass.v, shape.of_keys());
  check_view("lse", pass.lse, shape.of_rows());
  check_view("d_out", pass.d_out, shape.of_queries());
  check_view("delta", delta, shape.of_rows());
  check_supported(why_not(shape));
  return shape;
}

}  // namespace flash::backward
