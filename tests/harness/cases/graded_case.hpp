// A graded case: a name, a requirement, and a function from a seed to a verdict. Each task's cases
// are a plain list.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "harness/verdict.hpp"

namespace flash::harness {

// What a case asks of the place where the code under test runs.
enum class Needs {
  kNothing,
  kChecks,        // accesses of kernels are counted: by the emulator's checks
  kEmulator,      // what host code asks of the device is written down
  kSparseMemory,  // memory with holes: far_apart.hpp
  kNoChecks,      // the emulator's checks take too long
  kGpu,
};

// Whether a case can run there: "cpu" (plain C++), "gpu", "emulated" or "checked".
inline bool can_run(Needs needs, const std::string& backend) {
  switch (needs) {
    case Needs::kNothing: return true;
    case Needs::kChecks: return backend == "checked";
    case Needs::kEmulator: return backend == "emulated" || backend == "checked";
    case Needs::kSparseMemory: return backend == "cpu" || backend == "emulated";
    case Needs::kNoChecks: return backend != "checked";
    case Needs::kGpu: return backend == "gpu";
  }
  return false;
}

struct GradedCase {
  // Letters, digits, spaces and -_.:x/() only: it is typed in shells and Catch2's filters.
  std::string name;
  // What it asks, as tasks.toml calls it: a requirement earns its share of the task's points when
  // all of its cases pass, or most.
  std::string requirement;
  // NotYetImplemented passes through: "not started".
  std::function<Verdict(std::uint64_t seed)> run;
  // A case that needs the checks is listed everywhere; others only where they can run.
  Needs needs = Needs::kNothing;
  bool is_hidden = false;  // of grading/hidden/: its name begins with "hidden: "
};

struct TaskUnderTest {
  std::string id;  // as in tasks.toml, "part1.fused_cpu"
  bool is_cuda = false;
  std::vector<GradedCase> cases = {};

  void add(std::string name, std::string requirement, Needs needs,
           std::function<Verdict(std::uint64_t seed)> run) {
    cases.push_back({std::move(name), std::move(requirement), std::move(run), needs});
  }
  void add(std::string name, std::string requirement,
           std::function<Verdict(std::uint64_t seed)> run) {
    add(std::move(name), std::move(requirement), Needs::kNothing, std::move(run));
  }
};

// What is wrong, or "" when nothing is.
inline Verdict verdict_on(const std::string& wrong) { return {wrong.empty(), wrong}; }

// The first that failed, or success.
inline Verdict first_failure(std::initializer_list<Verdict> verdicts) {
  for (const Verdict& verdict : verdicts)
    if (!verdict.pass) return verdict;
  return {true, ""};
}

// Says of a step that failed which functions it is the first to need, and where else to look.
inline Verdict of_step(const std::string& needs, const std::string& beside, Verdict verdict) {
  if (!verdict.pass)
    verdict.text +=
        "\nThis is the first step that needs " + needs + "." + (beside.empty() ? "" : " " + beside);
  return verdict;
}

// Of a judge: flash_judge() in cmake/FlashTargets.cmake.
std::vector<TaskUnderTest> tasks();

// Of a file in grading/hidden/.
std::vector<GradedCase> hidden_cases();

}  // namespace flash::harness
