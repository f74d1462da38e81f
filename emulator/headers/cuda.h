// For the emulator: what a .cu file uses of it, which <cuda_runtime.h> has.
#pragma once

#include "cuda_runtime.h"
