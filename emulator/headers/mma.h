// For the emulator: nvcuda::wmma.
#pragma once

#include "emulator/headers/device/wmma.hpp"
#include "cuda_runtime.h"
