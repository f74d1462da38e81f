// A pipeline: kStages places in shared memory that one thread fills by TMA, and that others read
// (Hopper). Step n uses stage n % kStages. Each stage has two mbarriers. "Full" ends a phase when
// the copies of a step have landed, "empty" when all consumers have released it.
//
//   __shared__ Pipeline<2> pipeline;
//   if (threadIdx.x == 0) { pipeline.init(consumers); fence_barrier_init(); }
//   __syncthreads();
//   producer:    pipeline.wait_empty(n);            // returns at once for the first kStages steps
//                arrive_expecting(pipeline.full(n), bytes);
//                tma_load(tiles[pipeline.stage(n)], map, pipeline.full(n), ...);
//   consumers:   pipeline.wait_full(n);
//                ... read tiles[pipeline.stage(n)] ...
//                pipeline.release(n);               // one thread for each of the `consumers`
// A release may overtake a load, also ldmatrix: first use the loaded value, then release.
#pragma once

#include "common/cuda/mbarrier.hpp"

namespace flash {

template <int kStages>
struct Pipeline {
  Barrier full_barriers[kStages], empty_barriers[kStages];

  // By one thread, before fence_barrier_init(). `consumers` release each step.
  __device__ __forceinline__ void init(int consumers) {
    for (int stage = 0; stage < kStages; ++stage) {
      flash::init(full_barriers[stage], 1);
      flash::init(empty_barriers[stage], consumers);
    }
  }

  static __device__ __forceinline__ unsigned stage(unsigned step) { return step % kStages; }

  // mbarrier.hpp explains parity: step n is phase n / kStages of its stage's barriers.
  static __device__ __forceinline__ unsigned parity(unsigned step) { return step / kStages % 2; }

  // What the copies for a step arrive at.
  __device__ __forceinline__ Barrier& full(unsigned step) { return full_barriers[stage(step)]; }

  __device__ __forceinline__ void wait_empty(unsigned step) {
    wait(empty_barriers[stage(step)], parity(step) ^ 1);
  }
  __device__ __forceinline__ void wait_full(unsigned step) {
    wait(full_barriers[stage(step)], parity(step));
  }
  __device__ __forceinline__ void release(unsigned step) { arrive(empty_barriers[stage(step)]); }
};

}  // namespace flash
