// Configurations of a kernel: types that say how it is cut up, each compiled beforehand. A launcher
// takes the first of a table that fits the problem and the current GPU.
#pragma once

#include <cstddef>
#include <string>

#include "common/cuda/device.hpp"
#include "common/error.hpp"
#include "common/tensor.hpp"

namespace flash {

template <class... C>
struct Table {};

// Calls use(C()) for the first configuration with fits(C()). Returns whether there is one.
template <class... C, class Fits, class Use>
bool use_first(Table<C...>, Fits fits, Use use) {
  return ((fits(C()) && (use(C()), true)) || ...);
}

// Whether the current GPU has the shared memory that a thread block of `config` needs.
template <class C>
bool has_room(C) {
  return C::kSharedBytes <= device::shared_memory_per_block();
}

// Why kernels for Hopper do not run on the current GPU; "" when they do, and when there is no GPU.
inline std::string why_not_hopper() {
  if (device::count() == 0 || device::compute_capability() == 90) return "";
  return "the GPU has compute capability " + std::to_string(device::compute_capability()) +
         "; it must be 90 (Hopper)";
}

[[noreturn]] inline void throw_no_room(Index head_dim) {
  throw Unsupported("no configuration for a head_dim of " + std::to_string(head_dim) +
                    " has room in the " + std::to_string(device::shared_memory_per_block()) +
                    " bytes of shared memory that a block may have on this GPU");
}

// Calls use(C()) for the first configuration that holds a head of `head_dim` and has room.
template <class... C, class Use>
void with_config(Table<C...> table, Index head_dim, Use use) {
  const auto fits = [&]<class Each>(Each config) {
    return head_dim <= Each::kHeadDim && has_room(config);
  };
  if (!use_first(table, fits, use)) throw_no_room(head_dim);
}

}  // namespace flash
