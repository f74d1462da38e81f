// For the emulator: nvcuda::wmma.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include "emulator/headers/device/wmma.hpp"
