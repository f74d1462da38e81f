// For the emulator: thread blocks and tiles.
#pragma once

#include "common/simt/device/cooperative_groups.hpp"
#include "cuda_runtime.h"
