#pragma once

#include "common/export.hpp"

namespace flash::mutants {

// Launches the kernel of sample.cu.
FLASH_EXPORT const char* run_sample();

}  // namespace flash::mutants
