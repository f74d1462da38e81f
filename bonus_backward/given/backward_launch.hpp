// Given: what the launchers of the backward pass share: the checks of their arguments, and the choice of a configuration.
#pragma once

#include <limits>
#include <string>
#include <utility>

#include "bonus_backward/flash_backward_cuda.hpp"
#include "common/checks.hpp"
#include "common/cuda/device.hpp"

namespace flash::backward {

inline void check_head_dim(Index head_dim) {
  if (head_dim > kFlashBackwardMaxHeadDim)
    throw Unsupported("head_dim is " + std::to_string(head_dim) + "; the tiled backward pass takes at most " +
                      std::to_string(kFlashBackwardMaxHeadDim) + ", and plain_attention_backward_cuda() any");
}

// Of a shape that attention_shape() took. Inside a head the kernels count rows with 32 bits.
inline void check_supported(const AttentionShape& shape) {
  check_head_dim(shape.head_dim);
  for (const auto& [name, rows] : {std::pair{"queries", shape.queries}, {"keys", shape.keys}})
    if (rows > std::numeric_limits<int>::max())
      throw Unsupported(std::string(name) + " is " + std::to_string(rows) + "; the tiled backward pass takes at most " +
                        std::to_string(std::numeric_limits<int>::max()));
}

// The inputs that both passes have.
template <class T>
AttentionShape check_pass(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                          TensorView<const float, 3> lse, TensorView<const T, 4> d_out, TensorView<const float, 3> delta) {
  const AttentionShape shape = attention_shape(q.shape(), k.shape());
  check_view("q", q, shape.of_queries());
  check_view("k", k, shape.of_keys());
  check_view("v", v, shape.of_keys());
  check_view("lse", lse, shape.of_rows());
  check_view("d_out", d_out, shape.of_queries());
  check_view("delta", delta, shape.of_rows());
  check_supported(shape);
  return shape;
}

template <class... C>
struct Table {};

// Calls use(C()) for the first configuration that holds a head of `head_dim` and has room on the current GPU.
template <class... C, class Use>
void with_config(Table<C...>, Index head_dim, Use use) {
  const std::size_t room = device::shared_memory_per_block();
  const bool found = ((head_dim <= C::kHeadDim && C::kSharedBytes <= room && (use(C()), true)) || ...);
  if (!found)
    throw Unsupported("no configuration for a head_dim of " + std::to_string(head_dim) + " has room in the " +
                      std::to_string(room) + " bytes of shared memory that a block may have on this GPU");
}

}  // namespace flash::backward
