// __half: 5 bits of exponent, 10 of digits (float16.hpp).
#pragma once

#include "common/simt/device/float16.hpp"

using __half = flash::simt::Float16<5>;
using __half2 = flash::simt::Float16Pair<5>;
using half = __half;
using half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;

inline __half2 __half2half2(__half both) { return {both, both}; }
#define NAME(before, after) before##half##after
#define Number __half
#define Pair __half2
#include "common/simt/device/float16_names.inc"

#define CUDART_ZERO_FP16 __ushort_as_half(0x0000)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half(0x8000)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half(0x0001)
#define CUDART_ONE_FP16 __ushort_as_half(0x3c00)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7bff)
#define CUDART_INF_FP16 __ushort_as_half(0x7c00)
#define CUDART_NAN_FP16 __ushort_as_half(0x7fff)
