// mbarrier: a barrier in shared memory that counts arrivals of threads and bytes of TMA copies
// (Hopper). It runs through phases. A phase ends when the expected number of threads has arrived
// and all bytes that were announced for it have landed; the next phase expects as many threads.
//
//   __shared__ Barrier full;
//   if (threadIdx.x == 0) { init(full, 1); fence_barrier_init(); }   // one arrival a phase
//   __syncthreads();
//   if (producer) { arrive_expecting(full, bytes); tma_load(tile, map, full, ...); }
//   wait(full, n & 1);                                 // n: how often it was used before
//
// wait(barrier, parity) returns when the phase of this parity has ended: 0 for the first, third,
// ... phase, and 1 for the others. On a fresh barrier wait(barrier, 1) returns at once, as if a
// phase before the first had just ended. A wait may be repeated until the next phase ends. The
// waiting thread sees what the arriving threads did before, and the bytes that landed. Source: PTX
// ISA, "mbarrier".
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#include "common/cuda/shared_address.hpp"

namespace flash {

#ifdef FLASH_SIMT
using namespace simt::ptx;
#else

struct alignas(8) Barrier {
  std::uint64_t bits;  // the hardware's
};

// By one thread, before any other uses the barrier: `arrivals` threads arrive in each phase.
__device__ __forceinline__ void init(Barrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(&barrier)),
               "r"(arrivals)
               : "memory");
}

// Behind all init(), by the thread that called them: makes the barriers known to TMA. The other
// threads know them after a __syncthreads().
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

__device__ __forceinline__ void arrive(Barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(&barrier))
               : "memory");
}

// Arrives, and announces `bytes` of copies, which have to be started after it. The bytes of a box
// count in full, also where it hangs over the tensor's end.
__device__ __forceinline__ void arrive_expecting(Barrier& barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(&barrier)),
      "r"(bytes)
      : "memory");
}

__device__ __forceinline__ bool has_ended(Barrier& barrier, int parity) {
  std::uint32_t ended;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(ended)
      : "r"(shared_address(&barrier)), "r"(parity)
      : "memory");
  return ended != 0;
}

// In debug builds a wait of more than about 10 seconds ends the kernel with a message. Elsewhere it
// would cost: ptxas serializes wgmma around a trap.
__device__ __forceinline__ void wait(Barrier& barrier, int parity) {
#ifndef NDEBUG
  const long long begin = clock64();
  while (!has_ended(barrier, parity))
    if (clock64() - begin > 20'000'000'000) {
      printf("thread %d of block %d waits at the mbarrier at shared address %u for parity %d\n",
             threadIdx.x, blockIdx.x, shared_address(&barrier), parity);
      __trap();
    }
#else
  while (!has_ended(barrier, parity)) {
  }
#endif
}

#endif

}  // namespace flash
