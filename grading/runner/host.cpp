// A runner of tasks in C++: they need nothing but arithmetic.
#include "grading/runner/runner.hpp"

namespace flash::grading {

std::vector<unsigned> prepared_for(const char*) { return {}; }

}  // namespace flash::grading
