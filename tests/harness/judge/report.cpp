// Implements report.hpp.
#include "harness/judge/report.hpp"

#include <cstdio>

#include "common/error.hpp"

namespace flash::harness {
namespace {

std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += std::string("\\") + c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      json += escape;
    } else {
      json += c;
    }
  }
  return json + "\"";
}

std::string to_string(Status status) {
  switch (status) {
    case Status::kPassed: return "passed";
    case Status::kFailed: return "failed";
    case Status::kNotStarted: return "not_started";
    case Status::kNeedsGpu: return "needs_gpu";
    case Status::kNeedsChecks: return "needs_checks";
    case Status::kError: return "error";
  }
  return "error";
}

}  // namespace

Report::Report(const std::string& path) {
  if (path.empty()) return;
  std::ofstream(path, std::ios::trunc);
  file_.open(path, std::ios::app);  // where.cpp writes to its end as well
  if (!file_) throw Error("--report is '" + path + "'; it must be a file that can be written");
}

void Report::event(const std::string& kind,
                   const std::vector<std::pair<std::string, std::string>>& texts,
                   const std::string& more) {
  if (!file_.is_open()) return;
  file_ << "{\"event\":" << quoted(kind);
  for (const auto& [name, text] : texts) file_ << "," << quoted(name) << ":" << quoted(text);
  file_ << more << "}" << std::endl;
}

void Report::begin(const TaskUnderTest& task, std::uint64_t seed) {
  std::string cases;
  for (const GradedCase& graded : task.cases)
    cases += (cases.empty() ? "" : ",") + std::string("{\"name\":") + quoted(graded.name) +
             ",\"requirement\":" + quoted(graded.requirement) +
             ",\"challenge\":" + (graded.challenge ? "true" : "false") + "}";
  event("begin", {{"task", task.id}, {"implementation", implementation()}, {"backend", backend()}},
        ",\"seed\":" + std::to_string(seed) + ",\"cases\":[" + cases + "]");
}

void Report::end(const std::string& name, Status status, const std::string& message,
                 double seconds) {
  event("end", {{"case", name}, {"status", to_string(status)}, {"message", message}},
        ",\"seconds\":" + std::to_string(seconds));
}

}  // namespace flash::harness
