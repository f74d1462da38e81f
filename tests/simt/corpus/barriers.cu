// Barriers that some threads miss, different barriers met, deadlocks.
#include "common/cuda/launch.hpp"
#include "simt/corpus/corpus.hpp"

namespace flash::simt_corpus {
namespace {

using simt::FindingKind;

// The classic: threads past the end leave before the barrier.
__global__ void early_return(float* out, int count) {
  __shared__ float tile[64];
  if (static_cast<int>(threadIdx.x) >= count) return;
  tile[threadIdx.x] = 1;
  __syncthreads();  // BUG early_return
  out[threadIdx.x] = tile[count - 1 - threadIdx.x];
}

// A barrier that only one warp reaches.
__global__ void barrier_in_one_warp(float* out) {
  if (threadIdx.x < 32) __syncthreads();  // BUG barrier_in_one_warp
  out[threadIdx.x] = 1;
}

// Two branches, a barrier in each.
__global__ void barrier_in_both_branches(float* out) {
  if (threadIdx.x % 2 == 0) {
    out[threadIdx.x] = 1;
    __syncthreads();  // BUG barrier_in_both_branches
  } else {
    out[threadIdx.x] = 2;
    __syncthreads();  // BUG barrier_in_both_branches
  }
}

// Loops of different lengths with a barrier inside.
__global__ void uneven_loop(float* out) {
  for (unsigned i = 0; i < 1 + threadIdx.x / 32; ++i) {
    out[threadIdx.x] += 1;
    __syncthreads();  // BUG uneven_loop
  }
}

__global__ void counting_barrier(int* out) {
  if (threadIdx.x == 7) return;
  out[threadIdx.x] = __syncthreads_count(threadIdx.x % 2);  // BUG counting_barrier
}

// One lane waits in a shuffle, the others at the barrier.
__global__ void shuffle_against_barrier(float* out) {
  if (threadIdx.x == 0)
    out[0] = __shfl_sync(0xffffffffu, 1.0f, 0);  // BUG shuffle_against_barrier
  else
    __syncthreads();
}

// Each half of the warp waits for the other one in an operation of its own.
__global__ void crossed_shuffles(float* out) {
  if (threadIdx.x < 16)
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 16);  // BUG crossed_shuffles
  else
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 2.0f, 16);  // BUG crossed_shuffles
}

// Nobody ever opens the lock.
__global__ void lock_without_key(int* lock) {
  while (atomicCAS(lock, 0, 1) != 2) __nanosleep(1);
}

// The same, and the lanes (here one: the search takes long) meet between two looks.
__global__ void flag_that_nobody_raises(int* flag) {
  do __syncwarp(1);
  while (atomicAdd(flag, 0) == 0);
}

}  // namespace

std::vector<Specimen> barriers() {
  const auto with_out = [](const char* name, FindingKind mistake, void (*kernel)(float*), unsigned threads) {
    return Specimen{name, mistake, [=] {
                      const auto out = zeros(threads);
                      launch(name, kernel, {.grid = 1, .block = threads}, out.data());
                      return true;
                    }};
  };
  return {
      {"early_return", FindingKind::kBarrierMissed,
       [] {
         const auto out = zeros(64);
         launch("early_return", early_return, {.grid = 1, .block = 64}, out.data(), 50);
         return true;
       }},
      with_out("barrier_in_one_warp", FindingKind::kBarrierMissed, barrier_in_one_warp, 64),
      with_out("barrier_in_both_branches", FindingKind::kBarrierMismatch, barrier_in_both_branches, 64),
      with_out("uneven_loop", FindingKind::kBarrierMissed, uneven_loop, 64),
      {"counting_barrier", FindingKind::kBarrierMissed,
       [] {
         const auto out = integer_zeros(64);
         launch("counting_barrier", counting_barrier, {.grid = 1, .block = 64}, out.data());
         return true;
       }},
      with_out("shuffle_against_barrier", FindingKind::kWarpMismatch, shuffle_against_barrier, 32),
      with_out("crossed_shuffles", FindingKind::kWarpMismatch, crossed_shuffles, 32),
      {"lock_without_key", FindingKind::kDeadlock,
       [] {
         const auto lock = integer_zeros(1);
         launch("lock_without_key", lock_without_key, {.grid = 1, .block = 32}, lock.data());
         return true;
       }},
      {"flag_that_nobody_raises", FindingKind::kDeadlock,
       [] {
         const auto flag = integer_zeros(1);
         launch("flag_that_nobody_raises", flag_that_nobody_raises, {.grid = 1, .block = 1}, flag.data());
         return true;
       }},
  };
}

}  // namespace flash::simt_corpus
