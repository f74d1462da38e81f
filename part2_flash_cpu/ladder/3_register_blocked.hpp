// The kernels of rung 3, for rungs that cut the work in another way.
#pragma once

#include "part2_flash_cpu/ladder/per_isa/kernels.hpp"

namespace flash {

// Of the instruction set that runs here (isa.hpp).
const RungKernels& register_blocked_kernels();

}  // namespace flash
