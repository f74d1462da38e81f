// For the emulator: bfloat16, the upper 16 bits of a float (device/float16.hpp).
#pragma once

#include "emulator/headers/device/float16.hpp"

using __nv_bfloat16 = flash::simt::Float16<8>;
using __nv_bfloat162 = flash::simt::Float16Pair<8>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 both) { return {both, both}; }
#define NAME(before, after) before##bfloat16##after
FLASH_SIMT_FLOAT16_NAMES(NAME, __nv_bfloat16, __nv_bfloat162)
#undef NAME

#define CUDART_ZERO_BF16 __ushort_as_bfloat16(0x0000)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7f7f)
#define CUDART_INF_BF16 __ushort_as_bfloat16(0x7f80)
