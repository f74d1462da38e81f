// The bonus' kernels with a barrier left out, or with plain additions in the place of atomic ones: left_out.cu.
#pragma once

#include "common/export.hpp"

namespace flash::left_out {

// Barriers, of the thread block and of a warp, in the text of the solution; and those of the ladder's first rung behind them.
FLASH_EXPORT extern const int kBarriersOfSolution, kBarriers;

// Which barrier every thread passes by from now on; -1: none.
FLASH_EXPORT void leave_out(int barrier);

// Whether the ladder's atomic additions are plain ones.
FLASH_EXPORT void make_additions_plain(bool plain);

}  // namespace flash::left_out
