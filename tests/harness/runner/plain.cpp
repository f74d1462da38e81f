// A runner as its author starts it: his code may do what any program of his may.
#include "harness/runner/runner.hpp"

namespace flash::grading {

const bool kIsSandboxed = false;
void restrict_process(const Needs&, const Facts&) {}
void restrict_calls(const Needs&, const Facts&) {}

}  // namespace flash::grading
