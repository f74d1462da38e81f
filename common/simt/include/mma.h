// For the emulator: nvcuda::wmma.
#pragma once

#include "common/simt/device/wmma.hpp"
#include "cuda_runtime.h"
