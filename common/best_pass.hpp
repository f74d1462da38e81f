// "flash_best": for each problem the fastest pass.
#pragma once

#include "common/registry.hpp"

namespace flash {

inline constexpr char kBest[] = "flash_best";

// The same passes and, for each device and direction, one more that is called kBest. It hands a
// problem to the last rung of the ladder that accepts it, or if none does to "flash". It leaves out
// rungs whose entry says `best = false`.
FLASH_EXPORT Registry with_best(Registry registry);

}  // namespace flash
