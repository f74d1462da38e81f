// A runner of tasks in C++: they need nothing but arithmetic.
#include <unistd.h>

#include "harness/runner/runner.hpp"

namespace flash::grading {

std::vector<unsigned> prepared_for(const char*) { return {}; }
void run_nothing() {}
void* mapped_on_device(int, std::size_t) { _exit(5); }
std::string finding() { return ""; }

}  // namespace flash::grading
