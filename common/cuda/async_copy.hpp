// cp.async: copies from device memory to shared memory that go on while the thread computes (Ampere
// and later; Turing copies at once). The rules, which the emulator enforces:
//   cp_async_16(to, from)  starts a copy; nobody may read or write `to` until somebody has waited
//   cp_async_commit()      makes one group of all copies of this thread since the last commit
//   cp_async_wait<N>()     waits until at most the N newest groups of *this thread* are under way;
//                          other threads see the data after a __syncthreads() behind it
#pragma once

#include <cuda_runtime.h>

namespace flash {

#ifdef FLASH_SIMT
using namespace simt::ptx;
#else

// Copies `bytes` (0 to 16) from `from` and fills what is left of 16 with zeros: `bytes` = 0 loads a
// tile's row that does not exist, and `from` is not read then. Both addresses must be multiples
// of 16. Past the L1 cache: tiles are read once.
__device__ __forceinline__ void cp_async_16(void* to, const void* from, int bytes = 16) {
#if __CUDA_ARCH__ >= 800
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(from),
               "r"(bytes)
               : "memory");
#else
  const auto* source = static_cast<const unsigned char*>(from);
  for (int i = 0; i < 16; ++i) static_cast<unsigned char*>(to)[i] = i < bytes ? source[i] : 0;
#endif
}

// Copies BYTES, 4, 8 or 16; both addresses must be multiples of it. Through the L1 cache.
template <int BYTES>
__device__ __forceinline__ void cp_async(void* to, const void* from) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
#if __CUDA_ARCH__ >= 800
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;\n" ::"r"(shared), "l"(from), "n"(BYTES)
               : "memory");
#else
  for (int i = 0; i < BYTES / 4; ++i)
    static_cast<unsigned*>(to)[i] = static_cast<const unsigned*>(from)[i];
#endif
}

__device__ __forceinline__ void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

template <int N>
__device__ __forceinline__ void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
#endif
}

#endif

}  // namespace flash
