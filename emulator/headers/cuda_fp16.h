// For the emulator: half precision, 5 bits of exponent and 10 of digits (device/float16.hpp).
#pragma once

#include "emulator/headers/device/float16.hpp"

using __half = flash::simt::Float16<5>;
using __half2 = flash::simt::Float16Pair<5>;
using half = __half;
using half2 = __half2;

inline __half2 __half2half2(__half both) { return {both, both}; }
#define NAME(before, after) before##half##after
FLASH_SIMT_FLOAT16_NAMES(NAME, __half, __half2)
#undef NAME

#define CUDART_ZERO_FP16 __ushort_as_half(0x0000)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7bff)
#define CUDART_INF_FP16 __ushort_as_half(0x7c00)
