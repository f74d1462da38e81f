// For the emulator: nvcuda::wmma.
#pragma once

#include "cuda_runtime.h"

#include "common/simt/device/wmma.hpp"
