#pragma once

#include "mutants/mutants.hpp"

namespace flash::mutants {

extern "C" FLASH_EXPORT void flash_mutants_sample(std::vector<Mutant>& list);

// Launches the kernel of sample.cu.
FLASH_EXPORT const char* run_sample();

}  // namespace flash::mutants
