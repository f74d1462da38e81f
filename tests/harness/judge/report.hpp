// The report of a graded run, as JSON lines, each flushed at once: tools/lab/running.py shows them.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "common/json_line.hpp"
#include "harness/cases/graded_case.hpp"

namespace flash::harness {

// How a case ended.
enum class Status {
  kPassed,
  kFailed,
  kNotStarted,
  kNeedsGpu,
  kNeedsChecks,
  kError,  // an exception
  kCrashed,
  kTimedOut,
  kNotRun,
};

class Report {
 public:
  // Throws Error when the file cannot be written. An empty path writes nothing.
  explicit Report(const std::string& path);

  void begin(const TaskUnderTest& task, std::uint64_t seed);
  // `output` is what the code printed, `backend` where it ran.
  void end(const std::string& name, Status status, const std::string& message,
           const std::string& output, const std::string& backend, double seconds);

  // A line with these texts by their names.
  void event(const std::string& kind,
             const std::vector<std::pair<std::string, std::string>>& texts = {});

 private:
  void write(const JsonLine& line);

  std::ofstream file_;
};

}  // namespace flash::harness
