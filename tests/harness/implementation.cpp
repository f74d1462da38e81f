// Compiled into each graded test binary, to know which implementation it is linked with.
#include "harness/graded_case.hpp"

namespace flash::harness {
const char* implementation() { return FLASH_IMPLEMENTATION; }
const char* backend() { return FLASH_BACKEND; }
}  // namespace flash::harness
