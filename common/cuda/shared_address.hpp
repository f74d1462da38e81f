// Addresses in a block's shared memory, as matrix descriptors and swizzled tiles count them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace flash {

// The distance in bytes from the beginning of the shared memory window: a tile whose address in it
// is a multiple of 1024 is one for TMA and wgmma, whatever its generic address is.
#ifdef FLASH_SIMT
using namespace simt::ptx;
#else
__device__ __forceinline__ std::uint32_t shared_address(const void* memory) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
}
#endif

// The first place at or after `memory` whose address in shared memory is a multiple of 1024.
template <class T>
__device__ __forceinline__ T* align_to_1024(T* memory) {
  const std::uint32_t past = shared_address(memory) % 1024;
  return reinterpret_cast<T*>(reinterpret_cast<char*>(memory) + (past == 0 ? 0 : 1024 - past));
}

}  // namespace flash
