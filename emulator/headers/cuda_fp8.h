#error "The emulator has no 8-bit numbers: half (cuda_fp16.h) and bfloat16 (cuda_bf16.h) are there."
