// What the warpgroups of a block (128 threads each) share out on Hopper: registers and named
// barriers; and the fence between ordinary accesses and those of TMA and wgmma.
// Source: PTX ISA, "setmaxnreg", "barrier", "fence".
#pragma once

#include <cuda_runtime.h>

namespace flash {

#ifdef FLASH_SIMT
using namespace simt::ptx;
#else

// All threads of a warpgroup call it: each gives back its registers above COUNT, or waits until it
// can have COUNT. COUNT is a multiple of 8 from 24 to 256. A kernel with it needs
// __launch_bounds__(threads, 1).
template <int COUNT>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(COUNT));
}

// Barrier number `id`, 1 to 15 (0 is __syncthreads()), for `threads` threads of the block, a
// multiple of 32. sync_named() waits until that many have come; arrive_named() counts and goes on,
// so what happened before it is seen by those that sync.
__device__ __forceinline__ void sync_named(int id, int threads) {
  asm volatile("barrier.cta.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_named(int id, int threads) {
  asm volatile("barrier.cta.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

// TMA and wgmma reach shared memory past the ordinary path. A thread that wrote what they will read
// or overwrite calls this after its writes, and before the barrier that tells of them.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

#endif

}  // namespace flash
