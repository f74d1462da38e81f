// A graded case: a name, a requirement, and a function from a seed to a verdict. Each task's cases
// are a plain list.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "harness/diagnosis/diagnosis.hpp"

namespace flash::harness {

struct GradedCase {
  // Letters, digits, spaces and -_.:x/() only: it is typed in shells and Catch2's filters.
  std::string name;
  // What it asks, as tasks.toml calls it: a requirement earns its share of the task's points when
  // all of its cases pass, or most.
  std::string requirement;
  // NotYetImplemented passes through: "not started".
  std::function<Verdict(std::uint64_t seed)> run;
  // Asks the emulator's checks (emulator), and is run by the "checked" backend only.
  bool needs_checks = false;
  // Beyond the task: shown on the card, worth no points, and no failure where it is not met.
  bool challenge = false;
};

struct TaskUnderTest {
  std::string id;          // as in tasks.toml, "part1.fused_cpu"
  bool needs_gpu = false;  // its cases are skipped where there is no GPU
  std::function<bool()> has_gpu = [] { return false; };
  std::vector<GradedCase> cases;
};

// What is wrong, or "" when nothing is.
inline Verdict verdict_on(const std::string& wrong) { return {wrong.empty(), wrong}; }

// The first that failed, or success.
inline Verdict first_failure(std::initializer_list<Verdict> verdicts) {
  for (const Verdict& verdict : verdicts)
    if (!verdict.pass) return verdict;
  return {true, ""};
}

// Each test binary defines this once.
TaskUnderTest task_under_test();

// Cases that only an instructor's judge has (grading/hidden/); none elsewhere.
std::vector<GradedCase> hidden_cases();

// Which library this binary is linked with: "skeleton" or "solution"; and, of the same file,
// compiled for "cpu" (plain C++), "gpu", "emulated" or "checked".
const char* implementation();
const char* backend();

// Whether the code under test runs in this process. A judge's runs in another, and all that lies
// between the elements of a tensor is copied there.
inline bool in_process() { return implementation() != std::string("submission"); }

}  // namespace flash::harness
