// For the emulator, so that a file compiles that includes it and does not use it.
#pragma once

#define FLASH_SIMT_NO_FP8 \
  [[deprecated("the emulator has no 8-bit numbers: take half (cuda_fp16.h) or bfloat16")]]
struct FLASH_SIMT_NO_FP8 __nv_fp8_e4m3;
struct FLASH_SIMT_NO_FP8 __nv_fp8_e5m2;
#undef FLASH_SIMT_NO_FP8
