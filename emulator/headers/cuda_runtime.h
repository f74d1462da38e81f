// For the emulator: the host functions, everything that CUDA puts into a .cu file without being
// asked, and (in simt::ptx) the instructions that common/cuda has wrappers for.
#pragma once

#include "cuda_runtime_api.h"
#include "emulator/headers/device/async_copy.hpp"
#include "emulator/headers/device/atomics.hpp"
#include "emulator/headers/device/hopper.hpp"
#include "emulator/headers/device/host_interface.hpp"
#include "emulator/headers/device/kernel_call.hpp"
#include "emulator/headers/device/math.hpp"
#include "emulator/headers/device/sync.hpp"
#include "emulator/headers/device/tensor_core.hpp"
#include "emulator/headers/device/warp.hpp"
