// Compiled into each graded test binary, to know which implementation it is linked with. Without
// graded_case.hpp, which would take the compiler longer than all the rest.
namespace flash::harness {
const char* implementation();
const char* backend();

const char* implementation() { return FLASH_IMPLEMENTATION; }
const char* backend() { return FLASH_BACKEND; }
}  // namespace flash::harness
