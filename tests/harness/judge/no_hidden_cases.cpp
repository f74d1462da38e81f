// A library's default: the linker takes it where no file of grading/hidden/ defines the function.
#include "harness/cases/graded_case.hpp"

namespace flash::harness {
std::vector<GradedCase> hidden_cases() { return {}; }
}  // namespace flash::harness
