// "flash_best": for each problem the fastest pass.
#pragma once

#include "common/registry.hpp"

namespace flash {

inline constexpr char kBest[] = "flash_best";

// The same passes and, for each device and direction, one more that is called kBest. It hands a
// problem to the last rung of the ladder that accepts it, or if none does to "flash". It leaves out
// rungs whose entry says `best = false`, or whose `best_for` refuses the problem.
FLASH_EXPORT Registry with_best(Registry registry);

// The pass that runs a problem: `entry`, or the one that kBest hands it to. Throws Unsupported when
// there is none. Who asks once need not let kBest choose again for the workspace and the call.
template <template <class> class Pass>
const Entry<Pass>& chosen(const Entry<Pass>& entry, const typename Entry<Pass>::Problem& problem) {
  if (entry.choose)
    if (const Entry<Pass>* const pass = entry.choose(problem)) return *pass;
  check_supported(entry, problem);
  return entry;
}

}  // namespace flash
