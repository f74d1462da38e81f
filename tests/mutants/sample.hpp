#pragma once

#include "mutants/mutants.hpp"

namespace flash::mutants {

FLASH_EXPORT std::vector<Mutant> of_sample();

// Launches the kernel of sample.cu.
FLASH_EXPORT const char* run_sample();

}  // namespace flash::mutants
