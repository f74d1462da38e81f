// Warp operations whose lanes do not agree.
#include "common/cuda/warp.hpp"
#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

// Only half of the lanes that the mask names take part.
MISTAKE(kWarpMismatch, half_of_the_mask, ({1, 32}, zeros(32)), float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 1);  // BUG
  __syncthreads();
}

// A lane that its own mask does not name.
MISTAKE(kWarpMismatch, not_in_own_mask, ({1, 32}, zeros(32)), float* out) {
  out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0);  // BUG
}

MISTAKE(kWrongArgument, groups_of_24, ({1, 48}, zeros(48)), int* out) {
  out[threadIdx.x] = __shfl_sync(0xffffffffu >> (threadIdx.x / 32 * 16), 1, 0, 24);  // BUG
}

// A block of 48 threads: the second warp has no lane 16 to read from.
MISTAKE(kWarpMismatch, partial_warp, ({1, 48}, zeros(48)), float* out) {
  float sum = 1;
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);  // BUG
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = sum;
}

// Lanes disagree about who takes part.
MISTAKE(kWarpMismatch, two_masks, ({1, 32}, zeros(32)), float* out) {
  const unsigned mask = threadIdx.x < 16 ? 0xffffffffu : 0xffff0000u;
  out[threadIdx.x] = __shfl_sync(mask, 1.0f, 20);  // BUG
}

// The shuffle is in a header. Half of the lanes return.
MISTAKE(kWarpMismatch, return_before_a_sum, ({1, 32}, zeros(32)), float* out) {
  if (threadIdx.x >= 16) return;
  out[threadIdx.x] = warp_sum(1.0f);  // BUG
}

// And in a function that the kernel calls.
__device__ float sum_of_lanes(float value);
MISTAKE(kWarpMismatch, sum_in_a_function, ({1, 32}, zeros(32)), float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = sum_of_lanes(1);
  __syncthreads();
}
__device__ float sum_of_lanes(float value) {
  return warp_sum(value);  // BUG
}

}  // namespace
}  // namespace flash::simt_corpus
