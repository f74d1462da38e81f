// What a graded case says of a result, and the mistake that it has.
#pragma once

#include <functional>
#include <string>

namespace flash::harness {

// A mistake that explains a wrong result.
struct Diagnosis {
  std::string name;       // "accumulator not rescaled"; "" where none is known to be it
  std::string text;       // what a student reads; also where several mistakes are possible
  std::string kind = {};  // of the mistake: its hint's name in hints.toml
};

// What a case found out. `text` tells a student what is wrong; when the case passes, it may say how
// large the errors are. `diagnose` is called after the verdict is in the report, because it may
// call the code under test again, and that may crash.
struct Verdict {
  bool pass = false;
  std::string text;
  std::function<Diagnosis()> diagnose = {};
  std::function<std::string()> explain = {};  // with small numbers (small_problem.hpp); likewise
};

}  // namespace flash::harness
