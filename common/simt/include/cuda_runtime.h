// For the emulator: the host functions, and everything that CUDA puts into a .cu file without being
// asked.
#pragma once

#include "common/simt/device/atomics.hpp"
#include "common/simt/device/kernel_call.hpp"
#include "common/simt/device/math.hpp"
#include "common/simt/device/sync.hpp"
#include "common/simt/device/warp.hpp"
#include "cuda_runtime_api.h"
