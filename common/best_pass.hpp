// "flash_best": the pass that is the fastest for each problem.
#pragma once

#include "common/registry.hpp"

namespace flash {

inline constexpr char kBest[] = "flash_best";

// The same passes and, for each device and direction, one more that is called kBest. It hands a
// problem to the last rung of the ladder that takes it, without those whose entry says
// `best = false`, or else to "flash".
FLASH_EXPORT Registry with_best(Registry registry);

}  // namespace flash
