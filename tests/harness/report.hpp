// The report of a graded run, as JSON lines, each flushed at once: whoever reads it can tell a
// finished run from one that crashed or called exit, and which case was running.
// tools/lab/running.py is the reader.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "harness/graded_case.hpp"

namespace flash::harness {

// How a case ended, as the report spells it.
enum class Status { kPassed, kFailed, kNotStarted, kNeedsGpu, kNeedsChecks, kError };
std::string to_string(Status status);

class Report {
 public:
  // Throws Error when the file cannot be written. An empty path writes nothing.
  explicit Report(const std::string& path);

  void begin(const TaskUnderTest& task, std::uint64_t seed);
  void start(const std::string& name);
  void end(const std::string& name, Status status, const std::string& message, double seconds);
  void diagnosis(const std::string& name, const Diagnosis& diagnosis);
  void explanation(const std::string& name, const std::string& text);
  void complete();

 private:
  void line(const std::string& json);

  std::ofstream file_;
};

}  // namespace flash::harness
