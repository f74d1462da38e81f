// Half and BFloat16 (common/half.hpp) in kernels: to float and back. A kernel for several element
// types reads to_float(x), computes in float32, and writes from_float<T>(y), which rounds to the
// nearest. For float both do nothing. They are inlined, so that the emulator's checks see the
// access to x: g++ does not instrument the reading of a structure that is a function's argument.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/half.hpp"

namespace flash {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(Half x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ __forceinline__ float to_float(BFloat16 x) {
  return __bfloat162float(__ushort_as_bfloat16(x.bits));
}

template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    T result;
    if constexpr (std::is_same_v<T, Half>)
      result.bits = __half_as_ushort(__float2half_rn(x));
    else
      result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    return result;
  }
}

// Two numbers in a register, rounded to T, which has 16 bits.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, Half>) {
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(both);
  }
}

}  // namespace flash
