// Compiled into each graded test binary, to know which implementation it is linked with.
#include "harness/graded_case.hpp"

namespace flash::harness {
const char* implementation() { return FLASH_IMPLEMENTATION; }
const char* backend() { return FLASH_BACKEND; }
#ifndef FLASH_HIDDEN_CASES
std::vector<GradedCase> hidden_cases() { return {}; }
#endif
}  // namespace flash::harness
