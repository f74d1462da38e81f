#include "harness/judge/report.hpp"

#include "common/error.hpp"

namespace flash::harness {
namespace {

std::string to_string(Status status) {
  switch (status) {
    case Status::kPassed: return "passed";
    case Status::kFailed: return "failed";
    case Status::kNotStarted: return "not_started";
    case Status::kNeedsGpu: return "needs_gpu";
    case Status::kNeedsChecks: return "needs_checks";
    case Status::kError: return "error";
    case Status::kCrashed: return "crashed";
    case Status::kTimedOut: return "timed_out";
    case Status::kNotRun: return "not_run";
  }
  return "error";
}

}  // namespace

Report::Report(const std::string& path) {
  if (path.empty()) return;
  std::ofstream(path, std::ios::trunc);
  file_.open(path, std::ios::app);
  if (!file_) throw Error("--report is '" + path + "'; it must be a file that can be written");
}

void Report::write(const JsonLine& line) {
  if (file_.is_open()) file_ << line;
}

void Report::event(const std::string& kind,
                   const std::vector<std::pair<std::string, std::string>>& texts) {
  JsonLine line(kind);
  for (const auto& [name, text] : texts) line.add(name, text);
  write(line);
}

void Report::begin(const TaskUnderTest& task, std::uint64_t seed) {
  std::vector<JsonLine> cases;
  for (const GradedCase& graded : task.cases)
    cases.push_back(JsonLine().add("name", graded.name).add("requirement", graded.requirement));
  write(JsonLine("begin").add("task", task.id).add("seed", seed).add("cases", cases));
}

void Report::end(const std::string& name, Status status, const std::string& message,
                 const std::string& output, const std::string& backend, double seconds) {
  write(JsonLine("end")
            .add("case", name)
            .add("status", to_string(status))
            .add("message", message)
            .add("output", output)
            .add("backend", backend)
            .add("seconds", seconds));
}

}  // namespace flash::harness
