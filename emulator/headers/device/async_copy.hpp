// cp.async (common/cuda/async_copy.hpp) on the emulator: it copies as late as it may, at the wait.
// Until then the target is unwritten.
#pragma once

#include "emulator/headers/cuda_runtime_api.h"  // __forceinline__
#include "emulator/headers/device/kernel_interface.hpp"

namespace flash::simt::ptx {

__forceinline__ void cp_async_16(void* to, const void* from, int bytes = 16) {
  async_copy(to, from, 16, bytes);
}
template <int BYTES>
__forceinline__ void cp_async(void* to, const void* from) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
  async_copy(to, from, BYTES, BYTES);
}
inline void cp_async_commit() { async_commit(); }
template <int N>
void cp_async_wait() {
  async_wait(N);
}

}  // namespace flash::simt::ptx
