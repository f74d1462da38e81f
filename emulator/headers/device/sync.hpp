// Barriers and fences.
#pragma once

#include "emulator/headers/device/kernel_interface.hpp"

// One copy for each OS thread, which runs one block at a time. In a function it is static without
// saying so, and may say so. No constructor runs, as in CUDA: the variable that tells a compiler
// that it ran is thread_local, too, and so filled with 0xff (run/shared_memory.hpp).
#define __shared__ thread_local

namespace flash::simt::intrinsics {

inline void __syncthreads(Site site = Site::here()) { barrier("__syncthreads", site); }
inline int __syncthreads_count(int predicate, Site site = Site::here()) {
  return barrier("__syncthreads_count", site, predicate != 0);
}
inline int __syncthreads_and(int predicate, Site site = Site::here()) {
  return barrier("__syncthreads_and", site, predicate == 0) == 0;
}
inline int __syncthreads_or(int predicate, Site site = Site::here()) {
  return barrier("__syncthreads_or", site, predicate != 0) != 0;
}

inline void __syncwarp(unsigned mask = 0xffffffffu, Site site = Site::here()) {
  flash_simt_warp_operation(
      {.name = "__syncwarp", .site = site, .mask = mask, .orders_memory = true});
}

inline void __threadfence() { fence(); }
inline void __threadfence_block() { fence(); }
inline void __threadfence_system() { fence(); }
inline void __nanosleep(unsigned nanoseconds) { nap(nanoseconds); }
[[noreturn]] inline void __trap(Site site = Site::here()) { trap(site); }

// Unsupported functions fail at compile time.
#define FLASH_SIMT_UNSUPPORTED(declaration, why)                     \
  template <class Always = void>                                     \
  declaration {                                                      \
    static_assert(sizeof(Always*) == 0, "the emulator has no " why); \
    __builtin_trap();                                                \
  }
FLASH_SIMT_UNSUPPORTED(
    unsigned __activemask(),
    "__activemask(): the GPU decides which lanes run together; name them in a mask")
FLASH_SIMT_UNSUPPORTED(long long clock64(), "clock64(): its times say nothing about a GPU")
#undef FLASH_SIMT_UNSUPPORTED

}  // namespace flash::simt::intrinsics

using namespace flash::simt::intrinsics;
