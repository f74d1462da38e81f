// For the emulator: threadIdx and its kin, which <cuda_runtime.h> has.
#pragma once

#include "cuda_runtime.h"
