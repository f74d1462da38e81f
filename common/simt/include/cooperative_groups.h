// For the emulator: thread blocks and tiles.
#pragma once

#include "cuda_runtime.h"

#include "common/simt/device/cooperative_groups.hpp"
