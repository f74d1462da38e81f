// Barriers that some threads miss, different barriers met, deadlocks.
#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

// Threads past the end leave before the barrier.
MISTAKE(kBarrierMissed, early_return, ({1, 64}, zeros(64), 50), float* out, int count) {
  __shared__ float tile[64];
  if (static_cast<int>(threadIdx.x) >= count) return;
  tile[threadIdx.x] = 1;
  __syncthreads();  // BUG
  out[threadIdx.x] = tile[count - 1 - threadIdx.x];
}

// Half of the threads go past the barrier, and read what the others may not have written.
MISTAKE(kBarrierMissed, barrier_in_an_if, ({1, 64}, zeros(64)), float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = 1;
  if (threadIdx.x < 32) __syncthreads();  // BUG
  out[threadIdx.x] = tile[63 - threadIdx.x];
}

// Two branches, a barrier in each.
MISTAKE(kBarrierMismatch, barrier_in_both_branches, ({1, 64}, zeros(64)), float* out) {
  if (threadIdx.x % 2 == 0) {
    out[threadIdx.x] = 1;
    __syncthreads();  // BUG
  } else {
    out[threadIdx.x] = 2;
    __syncthreads();  // BUG
  }
}

// One lane waits in a shuffle, the others at the barrier.
MISTAKE(kWarpMismatch, shuffle_against_barrier, ({1, 32}, zeros(32)), float* out) {
  if (threadIdx.x == 0)
    out[0] = __shfl_sync(0xffffffffu, 1.0f, 0);  // BUG
  else
    __syncthreads();
}

// No thread ever opens the lock.
MISTAKE(kDeadlock, lock_without_key, ({1, 32}, zeros(1)), int* lock) {
  while (atomicCAS(lock, 0, 1) != 2) __nanosleep(1);
}

// The same, and the lanes (here one: the search takes long) meet between two looks.
MISTAKE(kDeadlock, flag_that_nobody_raises, ({1, 1}, zeros(1)), int* flag) {
  do __syncwarp(1);
  while (atomicAdd(flag, 0) == 0);
}

}  // namespace
}  // namespace flash::simt_corpus
