// What a program may ask of part 2's ladder besides its passes, which are in the registry. Threads:
// common/cpu/threads.hpp.
#pragma once

#include <string>

#include "common/export.hpp"

namespace flash {

// The instruction set that the rungs from 2 on use: "avx512", "avx2" or "baseline". Throws as
// chosen_isa() does (isa.hpp).
FLASH_EXPORT std::string ladder_isa();

// Gives back the memory that the rungs from 2 on keep from call to call: this thread's, and that of
// the waiting threads.
FLASH_EXPORT void release_kept_memory();

}  // namespace flash
