// Sums and maxima over the threads of a warp or of a block, and the constants of base 2. All of it
// is inlined, so that the emulator's findings name the line of the kernel that uses it.
#pragma once

#include "common/cuda/launch.hpp"

namespace flash {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// A GPU has instructions for base 2: exp(s) = exp2(s * kLog2E), and log(l) = log2(l) * kLn2.
inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

// 2^x by the GPU's own instruction: relative error at most 2^-22, and 0 for results below 2^-126.
// exp2f() handles those too, which costs three instructions more.
__device__ __forceinline__ float exp2_approximate(float x) {
#ifdef FLASH_SIMT
  return x < -126 ? 0 : exp2f(x);
#else
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#endif
}

// Combines the values of kLanes neighbouring lanes; each of these lanes gets the result.
template <int kLanes, class Combine>
__device__ __forceinline__ float warp_reduce(float value, Combine combine) {
  FLASH_UNROLL
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

// The same over a block of kThreads threads. `scratch` is shared memory for a float a warp.
template <int kThreads, class Combine>
__device__ __forceinline__ float block_reduce(float value, float* scratch, Combine combine) {
  value = warp_reduce<kWarpSize>(value, combine);
  if constexpr (kThreads > kWarpSize) {
    __syncthreads();  // scratch may still be read for the value before
    if (threadIdx.x % kWarpSize == 0) scratch[threadIdx.x / kWarpSize] = value;
    __syncthreads();
    value = scratch[0];
    for (int warp = 1; warp < kThreads / kWarpSize; ++warp) value = combine(value, scratch[warp]);
  }
  return value;
}

struct Larger {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Plus {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

// The largest of the values, and their sum.
template <int kLanes = kWarpSize>
__device__ __forceinline__ float warp_max(float value) {
  return warp_reduce<kLanes>(value, Larger{});
}
template <int kLanes = kWarpSize>
__device__ __forceinline__ float warp_sum(float value) {
  return warp_reduce<kLanes>(value, Plus{});
}
template <int kThreads>
__device__ __forceinline__ float block_max(float value, float* scratch) {
  return block_reduce<kThreads>(value, scratch, Larger{});
}
template <int kThreads>
__device__ __forceinline__ float block_sum(float value, float* scratch) {
  return block_reduce<kThreads>(value, scratch, Plus{});
}

}  // namespace flash
