// NVIDIA's half and bfloat16, on the host: compiled where the toolkit is there, with its include
// directory and none of ours.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define FLASH_HALF_BITS nvidia
#include "half_bits.hpp"
