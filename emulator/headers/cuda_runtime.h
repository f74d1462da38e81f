// For the emulator: the host functions, and everything that CUDA puts into a .cu file without being
// asked.
#pragma once

#include "emulator/headers/device/atomics.hpp"
#include "emulator/headers/device/kernel_call.hpp"
#include "emulator/headers/device/math.hpp"
#include "emulator/headers/device/sync.hpp"
#include "emulator/headers/device/warp.hpp"
#include "cuda_runtime_api.h"
