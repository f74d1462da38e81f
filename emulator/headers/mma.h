// For the emulator: nvcuda::wmma.
#pragma once

#include "cuda_runtime.h"
#include "emulator/headers/device/wmma.hpp"
