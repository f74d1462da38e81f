// main() of every graded test binary: enters the task's cases into Catch2, runs them, and writes
// the report.
//
//   BINARY [--seed N] [--report FILE] [--case NAME]... [--explain] [--list-cases]
//          [Catch2's options]
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/error.hpp"
#include "harness/catch.hpp"
#include "harness/catch_session.hpp"
#include "harness/cases/graded_case.hpp"
#include "harness/judge/report.hpp"
#include "harness/judge/where.hpp"

namespace flash::harness {
namespace {

struct Options {
  std::uint64_t seed = 1;
  std::string report;
  std::vector<std::string> cases;
  bool list = false, explain = false;
  std::vector<char*> rest;  // for Catch2
};

std::uint64_t parsed_seed(const std::string& text) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos)
    throw ArgumentError("--seed is '" + text +
                        "'; it must be a whole number from 0, of at most 18 digits");
  return std::stoull(text);
}

Options parse(int argc, char** argv) {
  Options options;
  options.rest.push_back(argv[0]);
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) throw ArgumentError(option + " needs a value behind it");
      return argv[++i];
    };
    if (option == "--seed") {
      options.seed = parsed_seed(value());
    } else if (option == "--report") {
      options.report = value();
    } else if (option == "--case") {
      options.cases.push_back(value());
    } else if (option == "--explain") {
      options.explain = true;
    } else if (option == "--list-cases") {
      options.list = true;
    } else {
      options.rest.push_back(argv[i]);
    }
  }
  return options;
}

void check_cases(const TaskUnderTest& task, const Options& options) {
  for (const std::string& name : options.cases) {
    bool known = false;
    for (const GradedCase& graded : task.cases) known |= graded.name == name;
    if (!known)
      throw ArgumentError("--case is '" + name + "'; " + task.id +
                          " has no such case (see --list-cases)");
  }
  std::set<std::string> names;
  for (const GradedCase& graded : task.cases) {
    if (!names.insert(graded.name).second)
      throw ArgumentError("two cases are called '" + graded.name + "'; each needs its own name");
    if (graded.needs_checks != (graded.name.rfind("checks: ", 0) == 0))
      throw ArgumentError("a case is called '" + graded.name +
                          "'; a name begins with 'checks: ' when the case needs them");
    for (const char c : graded.name)
      if (!std::isalnum(static_cast<unsigned char>(c)) &&
          std::string(" -_.:/()").find(c) == std::string::npos)
        throw ArgumentError("a case is called '" + graded.name +
                            "'; a name has letters, digits, spaces and -_.:/() only");
  }
}

// Runs the cases one by one, as Catch2 calls for them.
class Runner {
 public:
  Runner(const TaskUnderTest& task, const Options& options)
      : task_(task), seed_(options.seed), explains_(options.explain), report_(options.report) {
    report_.begin(task_, seed_);
    report_places_to(options.report);
  }

  void run(const GradedCase& graded) {
    report_.event("start", {{"case", graded.name}});
    const auto start = std::chrono::steady_clock::now();
    Status status = Status::kError;
    std::string message;
    Verdict verdict;
    try {
      if (task_.needs_gpu && !task_.has_gpu()) {
        status = Status::kNeedsGpu;
        message = "needs a GPU, and there is none here";
      } else if (graded.needs_checks && backend() != std::string("checked")) {
        status = Status::kNeedsChecks;
        message = "asks the emulator's checks, which this build is not linked with";
      } else {
        report_crashes();
        verdict = graded.run(seed_);
        status = verdict.pass ? Status::kPassed : Status::kFailed;
        message = verdict.text;
      }
    } catch (const NotYetImplemented& error) {
      status = Status::kNotStarted;
      message = error.what();
    } catch (const KernelError& error) {  // what the emulator found, in words of its own
      status = Status::kFailed;
      message = error.what();
    } catch (const std::exception& error) {
      message = std::string("it threw an exception: ") + error.what();
    } catch (...) {
      message = "it threw something that is not a std::exception";
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    report_.end(graded.name, status, message, seconds.count());
    if (status == Status::kFailed) message = diagnosed(graded.name, verdict, message);

    INFO(message);
    // A reference solution has to meet its own challenges. A student need not: to ctest one that is
    // not met is not started.
    if (graded.challenge && status == Status::kFailed &&
        implementation() == std::string("skeleton"))
      status = Status::kNotStarted;
    ++counts_[static_cast<int>(status)];
    if (status == Status::kNotStarted || status == Status::kNeedsGpu ||
        status == Status::kNeedsChecks) {
      std::cout << graded.name << ": " << message << std::endl;
      SUCCEED();
    } else {
      CHECK((status == Status::kPassed));
    }
  }

  // Says how the run ended, in the words that ctest looks for.
  void finish() {
    report_.event("complete");
    const auto count = [&](Status status) { return counts_[static_cast<int>(status)]; };
    const char* verdict = "verdict:failed";  // nothing ran, or something is wrong
    if (count(Status::kFailed) + count(Status::kError) == 0) {
      if (count(Status::kNotStarted) > 0) {
        verdict = "verdict:not-started";
      } else if (count(Status::kNeedsGpu) > 0) {
        verdict = "verdict:needs-gpu";
      } else if (count(Status::kPassed) > 0) {
        verdict = "verdict:passed";
      } else if (count(Status::kNeedsChecks) > 0) {
        verdict = "verdict:needs-checks";
      }
    }
    std::cout << verdict << std::endl;
  }

 private:
  // `message` beneath what the diagnosis says.
  std::string diagnosed(const std::string& name, const Verdict& verdict, std::string message) {
    try {
      const Diagnosis diagnosis = verdict.diagnose ? verdict.diagnose() : Diagnosis{};
      if (!diagnosis.text.empty()) {
        report_.event("diagnosis",
                      {{"case", name}, {"name", diagnosis.name}, {"kind", diagnosis.kind},
                                    {"text", diagnosis.text}});
        message = diagnosis.text + "\n" + message;
      }
      if (explains_ && verdict.explain) {
        const std::string text = verdict.explain();
        report_.event("explanation", {{"case", name}, {"text", text}});
        message += "\n" + text;
      }
    } catch (...) {  // of the code under test, on another problem
    }
    return message;
  }

  const TaskUnderTest& task_;
  std::uint64_t seed_;
  bool explains_;
  Report report_;
  int counts_[6] = {};
};

// Catch2's handle on one graded case.
class Invoker : public Catch::ITestInvoker {
 public:
  Invoker(Runner& runner, const GradedCase& graded) : runner_(runner), graded_(graded) {}
  void invoke() const override { runner_.run(graded_); }

 private:
  Runner& runner_;
  const GradedCase& graded_;
};

void enter_into_catch2(Runner& runner, const TaskUnderTest& task) {
  for (const GradedCase& graded : task.cases) {
    const Catch::SourceLineInfo line(__FILE__, static_cast<std::size_t>(__LINE__));
#if CATCH_VERSION_MAJOR >= 3
    Catch::AutoReg(Catch::Detail::unique_ptr<Catch::ITestInvoker>(new Invoker(runner, graded)),
                   line, "", Catch::NameAndTags(graded.name, "[graded]"));
#else
    Catch::AutoReg(new Invoker(runner, graded), line, "",
                   Catch::NameAndTags(graded.name, "[graded]"));
#endif
  }
}

int run(int argc, char** argv) {
  Options options = parse(argc, argv);
  TaskUnderTest task = task_under_test();
  for (GradedCase& hidden : hidden_cases()) {
    if (!hidden.name.starts_with("hidden: ") && !hidden.name.starts_with("checks: hidden: "))
      throw Error("the hidden case '" + hidden.name +
                  "' must have a name that begins with "
                  "'hidden: ' or 'checks: hidden: '");
    task.cases.push_back(std::move(hidden));
  }
  check_cases(task, options);
  if (options.list) {
    for (const GradedCase& graded : task.cases) std::cout << graded.name << "\n";
    return EXIT_SUCCESS;
  }

  // Emulated threads take their turns in an order that the seed decides, unless somebody chose one:
  // a missing barrier then shows for some seeds even where the results are all that is checked.
  if (options.seed != 1)
    setenv("FLASH_SIMT_SCHEDULE", ("random:" + std::to_string(options.seed)).c_str(), 0);

  // Catch2's filter: the exact names, quoted, with commas between.
  std::string filter;
  for (const std::string& name : options.cases)
    filter += (filter.empty() ? "\"" : ",\"") + name + "\"";
  if (!filter.empty()) options.rest.push_back(filter.data());

  Runner runner(task, options);
  enter_into_catch2(runner, task);
  const bool only_lists = [&] {
    for (const char* argument : options.rest)
      if (std::string(argument).rfind("--list", 0) == 0 || std::string(argument) == "--help")
        return true;
    return false;
  }();
  const int result = run_catch2(static_cast<int>(options.rest.size()), options.rest.data());
  if (!only_lists) runner.finish();
  return result;
}

}  // namespace
}  // namespace flash::harness

int main(int argc, char** argv) {
  // Line by line, also into a pipe: what was printed before a crash is then not lost.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  try {
    return flash::harness::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
