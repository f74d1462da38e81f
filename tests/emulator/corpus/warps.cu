// Warp operations whose lanes do not agree.
#include "common/cuda/warp.hpp"
#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

using enum simt::FindingKind;

// Only half of the lanes that the mask names take part.
__global__ void half_of_the_mask(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 1);  // BUG
  __syncthreads();
}

// A lane that its own mask does not name.
__global__ void not_in_own_mask(float* out) {
  out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0);  // BUG
}

// A block of 48 threads: the second warp has no lane 16 to read from.
__global__ void partial_warp(float* out) {
  float sum = 1;
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);  // BUG
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = sum;
}

// Lanes disagree about who takes part.
__global__ void two_masks(float* out) {
  const unsigned mask = threadIdx.x < 16 ? 0xffffffffu : 0xffff0000u;
  out[threadIdx.x] = __shfl_sync(mask, 1.0f, 20);  // BUG
}

// The shuffle is in a header. Half of the lanes return.
__global__ void return_before_a_sum(float* out) {
  if (threadIdx.x >= 16) return;
  out[threadIdx.x] = warp_sum(1.0f);  // BUG
}

// And in a function that the kernel calls.
__device__ float sum_of_lanes(float value);
__global__ void sum_in_a_function(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = sum_of_lanes(1);
  __syncthreads();
}
__device__ float sum_of_lanes(float value) {
  return warp_sum(value);  // BUG
}

}  // namespace

std::vector<Specimen> warps() {
  return {
      mistake(kWarpMismatch, KERNEL(half_of_the_mask), {1, 32}, zeros(32)),
      mistake(kWarpMismatch, KERNEL(not_in_own_mask), {1, 32}, zeros(32)),
      mistake(kWarpMismatch, KERNEL(partial_warp), {1, 48}, zeros(48)),
      mistake(kWarpMismatch, KERNEL(two_masks), {1, 32}, zeros(32)),
      mistake(kWarpMismatch, KERNEL(return_before_a_sum), {1, 32}, zeros(32)),
      mistake(kWarpMismatch, KERNEL(sum_in_a_function), {1, 32}, zeros(32)),
  };
}

}  // namespace flash::simt_corpus
