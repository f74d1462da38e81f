// main() of a judge: enters a task's cases into Catch2, runs them, and writes the report. The code
// under test runs in runners, never here.
#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/error.hpp"
#include "harness/cases/graded_case.hpp"
#include "harness/cases/padded_tensor.hpp"
#include "harness/catch.hpp"
#include "harness/catch_session.hpp"
#include "harness/judge/remote.hpp"
#include "harness/judge/report.hpp"

namespace flash::harness {
namespace {

using grading::Facts;
using grading::RunnerEnded;

constexpr const char* kUsage =
    R"(--task ID --library FILE [--other-library FILE] [--seed N] [--case NAME]... [--explain]
              [--report FILE] [--list-cases [--backend NAME]] [Catch2's options] [-- RUNNER...]
  --task ID          part1.fused_cpu
  --library FILE     the task's library, compiled for one backend
  --other-library FILE  of another task of the same author, for cases in which two work together
  -- RUNNER...       the command that runs the libraries, in place of the runner that the end of the
                     library's name asks for: _emulated, _checked, none of them
  --seed N           of the inputs
  --case NAME        runs this case, and the others that are named
  --needs-checks     runs those only that need the emulator's checks
  --explain          shows failed cases with small numbers
  --report FILE      for results as JSON lines
  --list-cases       prints the names of the cases, those of one backend if that is named
  --call-seconds S   that a call may take
  --profile          the runner counts what it runs: no case is run a second time
  --attended         somebody looks at the runner in a terminal: it may take its time
)";

struct Options {
  std::string task, library, other_library, report, backend;
  std::uint64_t seed = 1;
  std::vector<std::string> cases, runner;
  double seconds = 0;
  bool list = false, needs_checks = false, explain = false, attended = false, is_profile = false;
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
    } else if (option == "--task") {
      options.task = value();
    } else if (option == "--library") {
      options.library = value();
    } else if (option == "--other-library") {
      options.other_library = value();
    } else if (option == "--") {
      options.runner.assign(argv + i + 1, argv + argc);
      break;
    } else if (option == "--backend") {
      options.backend = value();
    } else if (option.starts_with("--for=")) {  // TASK/BACKEND, for Catch2's discovery of tests
      const std::size_t slash = option.find('/');
      options.task = option.substr(6, slash - 6);
      options.backend = option.substr(slash + 1);
    } else if (option == "--report") {
      options.report = value();
    } else if (option == "--case") {
      options.cases.push_back(value());
    } else if (option == "--call-seconds") {
      options.seconds = std::atof(value().c_str());
    } else if (option == "--needs-checks") {
      options.needs_checks = true;
    } else if (option == "--explain") {
      options.explain = true;
    } else if (option == "--profile") {
      options.is_profile = true;
    } else if (option == "--attended") {
      options.attended = true;
    } else if (option == "--list-cases") {
      options.list = true;
    } else {
      options.rest.push_back(argv[i]);
    }
  }
  return options;
}

TaskUnderTest task_called(const std::string& id) {
  std::string known;
  for (TaskUnderTest& task : tasks()) {
    if (task.id == id) return task;
    known += (known.empty() ? "" : ", ") + task.id;
  }
  throw ArgumentError("--task is '" + id + "'; it must be one of " + known);
}

// ---- Libraries and runners ----------------------------------------------------------------------

// The runner of this build.
std::vector<std::string> usual_runner(const Options& options, const std::string& program,
                                      const TaskUnderTest& task) {
  const std::string name = std::filesystem::path(options.library).stem().string();
  const auto is_for = [&](const char* backend) { return name.ends_with(backend); };
  const char* const kind = is_for("_emulated")  ? "flash_runner_emulated"
                           : is_for("_checked") ? "flash_runner_checked"
                           : task.is_cuda       ? "flash_runner_gpu"
                                                : "flash_runner";
  std::vector<std::string> words{(std::filesystem::path(program).parent_path() / kind).string(),
                                 std::filesystem::absolute(options.library).string()};
  if (!options.other_library.empty())
    words.push_back(std::filesystem::absolute(options.other_library).string());
  return words;
}

grading::Given given_by(const Options& options, const std::string& program,
                        const TaskUnderTest& task) {
  if (!std::filesystem::exists(options.library))
    throw ArgumentError("--library is '" + options.library +
                        "', and there is no such file: build it first");
  return {.command = {.words = options.runner.empty() ? usual_runner(options, program, task)
                                                      : options.runner,
                      .is_attended = options.attended},
          .library = options.library,
          .seconds = options.seconds};
}

// The cases that can be run with this backend, and those that need the checks; of all backends
// where none is named, each name once.
TaskUnderTest for_backend(TaskUnderTest task, const std::string& backend) {
  std::set<std::string> seen;
  std::erase_if(task.cases, [&](const GradedCase& graded) {
    if (backend.empty()) return !seen.insert(graded.name).second;
    return graded.needs != Needs::kChecks && !can_run(graded.needs, backend);
  });
  return task;
}

void check_cases(const TaskUnderTest& task, const Options& options) {
  for (const std::string& name : options.cases) {
    bool known = options.needs_checks;
    for (const GradedCase& graded : task.cases) known |= graded.name == name;
    if (!known)
      throw ArgumentError("--case is '" + name + "'; " + task.id +
                          " has no such case (see --list-cases)");
  }
  std::set<std::string> names;
  for (const GradedCase& graded : task.cases) {
    if (!names.insert(graded.name).second)
      throw ArgumentError("two cases are called '" + graded.name + "'; each needs its own name");
    if (graded.is_hidden != graded.name.starts_with("hidden: "))
      throw ArgumentError("a case is called '" + graded.name +
                          "'; those of grading/hidden/ begin with 'hidden: ', and no others");
    for (const char c : graded.name)
      if (!std::isalnum(static_cast<unsigned char>(c)) &&
          std::string(" -_.:/()").find(c) == std::string::npos)
        throw ArgumentError("a case is called '" + graded.name +
                            "'; a name has letters, digits, spaces and -_.:/() only");
  }
}

// ---- Running ------------------------------------------------------------------------------------

// Runs the cases one by one, as Catch2 calls for them.
class Run {
 public:
  Run(const TaskUnderTest& task, const Facts& facts, const Options& options)
      : task_(task), facts_(facts), options_(options), report_(options.report) {
    report_.begin(task_, options.seed);
  }

  void run(const GradedCase& graded) {
    report_.event("start", {{"case", graded.name}});
    const auto start = std::chrono::steady_clock::now();
    Status status = Status::kError;
    std::string message, output;
    Verdict verdict;
    const bool runs = can_run(graded.needs, facts_.backend) && facts_.has_device;
    try {
      if (!can_run(graded.needs, facts_.backend)) {
        status = Status::kNeedsChecks;
        message = "asks the emulator's checks, which this library is not compiled for";
      } else if (!runs) {
        status = Status::kNeedsGpu;
        message = "needs a GPU, and there is none here";
      } else {
        grading::begin_case();
        verdict = graded.run(options_.seed);
        // A race costs nothing here where the results are right as they would be on most GPUs. A
        // profile would count all twice.
        if (!verdict.pass && grading::has_race_in_case() && !options_.is_profile) {
          grading::run_in_step();
          verdict = graded.run(options_.seed);
        }
        if (verdict.pass)
          if (const std::string more = grading::complaint(); !more.empty()) verdict = {false, more};
        status = verdict.pass ? Status::kPassed : Status::kFailed;
        message = verdict.text;
      }
    } catch (const NotYetImplemented& error) {
      status = Status::kNotStarted;
      message = error.what();
    } catch (const grading::NoOtherTask& error) {
      status = Status::kNotStarted;
      message = error.what();
    } catch (const RunnerEnded& error) {
      status = error.how == RunnerEnded::How::kCrashed    ? Status::kCrashed
               : error.how == RunnerEnded::How::kTimedOut ? Status::kTimedOut
                                                          : Status::kNotRun;
      message = error.what();
    } catch (const KernelError& error) {  // what the emulator found, in words of its own
      status = Status::kFailed;
      message = error.what();
      if (message.find("are grid and block exchanged?") != std::string::npos)
        verdict.diagnose = [] {
          return Diagnosis{"grid and block exchanged",
                           "There are as many thread blocks as each should have threads: .grid "
                           "counts thread blocks, .block the threads of one.",
                           "launch"};
        };
    } catch (const std::exception& error) {
      message = std::string("it threw an exception: ") + error.what();
    } catch (...) {
      message = "it threw something that is not a std::exception";
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (runs) output = grading::take_output();
    report_.end(graded.name, status, message, output,
                status == Status::kNeedsChecks ? "checked" : facts_.backend, seconds.count());
    if (status == Status::kFailed) message = diagnosed(graded.name, verdict, message);
    if (options_.report.empty()) print(graded.name, status, message, output);
    ++counts_[static_cast<int>(status)];
    CHECK((status == Status::kPassed || status == Status::kNotStarted ||
           status == Status::kNeedsGpu || status == Status::kNeedsChecks));
  }

  // Says how the run ended, in the words that ctest looks for.
  void finish() {
    grading::end_runners();
    report_.event("complete");
    const auto count = [&](Status status) { return counts_[static_cast<int>(status)]; };
    const char* verdict = "verdict:failed";  // nothing ran, or something is wrong
    if (count(Status::kFailed) + count(Status::kError) + count(Status::kCrashed) +
            count(Status::kTimedOut) + count(Status::kNotRun) ==
        0) {
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
  // As ./lab check shows a case.
  static void print(const std::string& name, Status status, const std::string& message,
                    const std::string& output) {
    static constexpr const char* kWords[] = {"passed",      "wrong",        "not started",
                                             "needs a GPU", "needs checks", "exception",
                                             "crashed",     "timed out",    "not run"};
    std::cout << kWords[static_cast<int>(status)] << ": " << name << "\n";
    const auto lines = [](const std::string& text, const char* before, const char* later) {
      std::istringstream all(text);
      for (std::string line; std::getline(all, line); before = later)
        std::cout << before << line << "\n";
    };
    lines(message, "    ", "      ");
    if (!output.empty()) std::cout << "    it printed:\n";
    lines(output, "    | ", "    | ");
  }

  // `message` beneath what the diagnosis says.
  std::string diagnosed(const std::string& name, const Verdict& verdict, std::string message) {
    if (verdict.explain) report_.event("explainable", {{"case", name}});
    grading::calls_are_for_a_diagnosis();
    const auto unless_it_throws = [](const auto& look) {
      try {
        look();
      } catch (...) {  // of the code under test, on another problem
      }
    };
    unless_it_throws([&] {
      const Diagnosis diagnosis = verdict.diagnose ? verdict.diagnose() : Diagnosis{};
      if (!diagnosis.text.empty()) {
        report_.event("diagnosis", {{"case", name},
                                    {"name", diagnosis.name},
                                    {"kind", diagnosis.kind},
                                    {"text", diagnosis.text}});
        message = diagnosis.text + "\n" + message;
      }
    });
    unless_it_throws([&] {
      if (options_.explain && verdict.explain) {
        const std::string text = verdict.explain();
        report_.event("explanation", {{"case", name}, {"text", text}});
        message += "\n" + text;
      }
    });
    return message;
  }

  const TaskUnderTest& task_;
  const Facts& facts_;
  const Options& options_;
  Report report_;
  int counts_[9] = {};
};

// Catch2's handle on one graded case.
class Invoker : public Catch::ITestInvoker {
 public:
  Invoker(Run& run, const GradedCase& graded) : run_(run), graded_(graded) {}
  void invoke() const override { run_.run(graded_); }

 private:
  Run& run_;
  const GradedCase& graded_;
};

void enter_into_catch2(Run& run, const TaskUnderTest& task) {
  for (const GradedCase& graded : task.cases) {
    const Catch::SourceLineInfo line(__FILE__, static_cast<std::size_t>(__LINE__));
#if CATCH_VERSION_MAJOR >= 3
    Catch::AutoReg(Catch::Detail::unique_ptr<Catch::ITestInvoker>(new Invoker(run, graded)), line,
                   "", Catch::NameAndTags(graded.name, "[graded]"));
#else
    Catch::AutoReg(new Invoker(run, graded), line, "", Catch::NameAndTags(graded.name, "[graded]"));
#endif
  }
}

int run(int argc, char** argv) {
  Options options = parse(argc, argv);
  bool only_lists = options.list;
  for (const char* argument : options.rest) {
    const std::string word = argument;
    only_lists |= word.rfind("--list", 0) == 0;
    if (word == "--help") std::cout << argv[0] << " " << kUsage;
    if (word == "--help") return EXIT_SUCCESS;
  }
  TaskUnderTest task = task_called(options.task);
  // Emulated threads take their turns in an order that the seed decides, unless somebody chose one:
  // a missing barrier then shows for some seeds even where the results are all that is checked.
  // Student code can read it, so that it tells little of the seed (as in
  // tools/lab/submission/judging.py).
  if (options.seed != 1)
    setenv("FLASH_SIMT_SCHEDULE", ("random:" + std::to_string(options.seed % 65521)).c_str(), 0);

  Facts facts{.backend = options.backend};
  if (!only_lists) {
    grading::start_runners(given_by(options, argv[0], task));
    facts = grading::facts();
  }
  task = for_backend(std::move(task), facts.backend);
  if (options.needs_checks)
    std::erase_if(task.cases, [](const GradedCase& one) { return one.needs != Needs::kChecks; });
  if (options.list) {
    for (const GradedCase& graded : task.cases) std::cout << graded.name << "\n";
    return EXIT_SUCCESS;
  }
  check_cases(task, options);

  // Catch2's filter: the exact names, quoted, with commas between.
  std::string filter;
  for (const std::string& name : options.cases)
    filter += (filter.empty() ? "\"" : ",\"") + name + "\"";
  if (!filter.empty()) options.rest.push_back(filter.data());

  char silently[] = "--out=/dev/null";  // Catch2's report, in whose place the verdict stands
  if (only_lists)
    options.report.clear();
  else if (options.report.empty())
    options.rest.push_back(silently);
  Run run(task, facts, options);
  enter_into_catch2(run, task);
  const int result = run_catch2(static_cast<int>(options.rest.size()), options.rest.data());
  if (!only_lists) run.finish();
  return result;
}

}  // namespace
}  // namespace flash::harness

int main(int argc, char** argv) {
  // Line by line, also into a pipe.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  flash::harness::forbids_surroundings = false;
  try {
    return flash::harness::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
