// For the emulator: half precision, under CUDA's names.
#pragma once

#include "common/simt/device/half.hpp"
