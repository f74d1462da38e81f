// Barriers, fences and turns.
#pragma once

#include "common/simt/device/kernel_interface.hpp"

// One copy for each OS thread, and an OS thread runs one block at a time. constinit: as in CUDA, nothing runs to construct it; and
// g++ would put a guard beside an array whose type has a constructor, even one that does nothing (half). clang has no such guard,
// and rejects constinit here.
#ifdef __clang__
#define __shared__ static thread_local
#else
#define __shared__ constinit static thread_local
#endif
#define __grid_constant__

inline void __syncthreads(flash::simt::Site site = flash::simt::Site::here()) { flash::simt::barrier("__syncthreads", site); }
inline int __syncthreads_count(int predicate, flash::simt::Site site = flash::simt::Site::here()) {
  return flash::simt::barrier("__syncthreads_count", site, predicate != 0);
}
inline int __syncthreads_and(int predicate, flash::simt::Site site = flash::simt::Site::here()) {
  return flash::simt::barrier("__syncthreads_and", site, predicate == 0) == 0;
}
inline int __syncthreads_or(int predicate, flash::simt::Site site = flash::simt::Site::here()) {
  return flash::simt::barrier("__syncthreads_or", site, predicate != 0) != 0;
}

inline void __syncwarp(unsigned mask = 0xffffffffu, flash::simt::Site site = flash::simt::Site::here()) {
  flash::simt::warp_operation(
      {.name = "__syncwarp", .site = site, .mask = mask, .slot = nullptr, .complete = nullptr, .orders_memory = true});
}

inline void __threadfence() { flash::simt::fence(); }
inline void __threadfence_block() { flash::simt::fence(); }
inline void __threadfence_system() { flash::simt::fence(); }
inline void __nanosleep(unsigned) { flash::simt::nap(); }

// What the emulator cannot do fails here, at compile time.
#define FLASH_SIMT_UNSUPPORTED(declaration, why)                        \
  template <class Always = void>                                        \
  declaration {                                                         \
    static_assert(sizeof(Always*) == 0, "the emulator has no " why);    \
    __builtin_trap();                                                   \
  }
FLASH_SIMT_UNSUPPORTED(unsigned __activemask(), "__activemask(): which lanes run together is the GPU's affair; name them in a mask")
FLASH_SIMT_UNSUPPORTED(long long clock64(), "clock64(): no time it takes says anything about a GPU")
FLASH_SIMT_UNSUPPORTED(int clock(), "clock(): no time it takes says anything about a GPU")
#undef FLASH_SIMT_UNSUPPORTED
