// The emulator's half and bfloat16.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define FLASH_HALF_BITS emulated
#include "half_bits.hpp"
