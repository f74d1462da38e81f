// Which of the kernels in per_isa/ run here: those of the best instruction set that the processor has, or of the environment's
// FLASH_ISA.
#pragma once

#include "part2_flash_cpu/ladder/per_isa/kernels.hpp"

namespace flash {

// Looks at the processor and the environment once. Throws ArgumentError when FLASH_ISA is no instruction set of this build, and
// Unsupported when the processor does not have it.
template <class T>
const Kernels<T>& vectorised_kernels();
template <class T>
const Kernels<T>& register_blocked_kernels();

}  // namespace flash
