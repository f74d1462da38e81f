// For the emulator: bfloat16, under CUDA's names.
#pragma once

#include "common/simt/device/bfloat16.hpp"
