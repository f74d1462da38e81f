// The judge of the leaderboard: measures a student's functions beside the reference's, in turns,
// and writes every sample. ./lab submit starts it and makes a receipt of what it wrote.
//
// This process owns inputs, oracle and clock, and loads no student code (harness/judge/timed.hpp).
// For each problem of a board and each turn: new inputs; each pass of the student and of the
// reference on them, in a random order; the check of both results; one call with the same tensors
// that has nothing to do, whose time is the cost of the exchange. A wrong result ends the run:
// there is no time for it.
//
// The report is a line of JSON for each event: "begin", "sample", "wrong", "complete". Without
// "complete" nothing counts.
#include <chrono>
#include <fstream>

#include "benchmarking/leaderboard/problem.hpp"
#include "benchmarking/options.hpp"
#include "benchmarking/program.hpp"
#include "common/error.hpp"
#include "common/inputs.hpp"
#include "common/json_line.hpp"
#include "harness/judge/call.hpp"
#include "harness/judge/timed.hpp"

namespace flash::leaderboard {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;
using grading::Timed;
using grading::TimedRunner;

// The words of a command, one a line of the file.
std::vector<std::string> command_in(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string line; std::getline(file, line);) words.push_back(line);
  if (words.empty()) throw OptionError("the file of a runner's command is empty: " + path);
  return words;
}

struct Plan {
  Asked asked;
  Strings problems;
  Strings students, references;  // files with the commands of the runners, one for each pass
  int turns = 0;
  double warm_up_ms = 0;
};
constexpr double kSecondsACall = 20;

class Measurement {
 public:
  Measurement(const Plan& plan, std::uint64_t seed, const std::string& output)
      : plan_(plan), seeds_(seed), report_(output, std::ios::app) {
    for (const std::string& file : plan.students)
      students_.emplace_back(command_in(file), kSecondsACall, memory_of_calls());
    for (const std::string& file : plan.references)
      references_.emplace_back(command_in(file), kSecondsACall, memory_of_calls());
  }

  void run() {
    for (const std::string& name : plan_.problems) {
      const auto problem = make_problem(plan_.asked, name);
      if (problem->passes.size() != students_.size() || students_.size() != references_.size())
        throw OptionError("a runner is needed for each pass");
      warm_up(*problem, name);
      for (int turn = 0; turn < plan_.turns && right_; ++turn) take_turn(*problem, name, turn);
      if (!right_) break;
    }
    if (right_) report_ << JsonLine("complete");
  }

 private:
  // By time and not by count: a processor at rest needs milliseconds to reach its clock rate. What
  // is called looks to the runner like what is timed later.
  void warm_up(Problem& problem, const std::string& name) {
    const auto end = std::chrono::steady_clock::now() + Milliseconds(plan_.warm_up_ms);
    problem.draw(seeds_.bits() >> 3);
    do {
      for (std::size_t pass = 0; pass < students_.size() && right_; ++pass)
        for (TimedRunner* runner : {&references_[pass], &students_[pass]})
          (void)measured(problem, name, pass, *runner);
    } while (right_ && std::chrono::steady_clock::now() < end);
  }

  void take_turn(Problem& problem, const std::string& name, int turn) {
    problem.draw(seeds_.bits() >> 3);
    const Rates rates = rates_now();
    for (std::size_t pass = 0; pass < students_.size() && right_; ++pass) {
      const bool reference_first = seeds_.bits() & 1;
      Timed student, reference;
      if (reference_first) reference = measured(problem, name, pass, references_[pass]);
      student = measured(problem, name, pass, students_[pass]);
      if (!right_) return;
      if (!reference_first) reference = measured(problem, name, pass, references_[pass]);
      grading::Call empty = problem.call(pass);
      empty.function = grading::kNothing;
      const Timed nothing = references_[pass].call(empty);
      report_ << JsonLine("sample")
                     .add("problem", name)
                     .add("pass", problem.passes[pass].name)
                     .add("turn", turn)
                     .add("student_ms", student.wall_ms)
                     .add("student_processor_ms", student.processor_ms)
                     .add("student_wait_ms", student.wait_ms)
                     .add("reference_ms", reference.wall_ms)
                     .add("reference_processor_ms", reference.processor_ms)
                     .add("reference_wait_ms", reference.wait_ms)
                     .add("exchange_ms", nothing.wall_ms)
                     .add("exchange_processor_ms", nothing.processor_ms)
                     .add("extra_bytes", student.extra_bytes)
                     .add("flops", problem.passes[pass].flops)
                     .add("bytes", problem.passes[pass].bytes)
                     .add("peak_gflops", rates.peak_gflops)
                     .add("bandwidth_gbs", rates.bandwidth_gbs);
    }
  }

  // One call with its check. A student's wrong result or exception is an event, and ends the run;
  // the reference's is a mistake of the judge.
  Timed measured(Problem& problem, const std::string& name, std::size_t pass, TimedRunner& runner) {
    const bool students = &runner == &students_[pass];
    std::string wrong;
    Timed timed;
    try {
      timed = runner.call(problem.call(pass));
      wrong = problem.wrong(pass);
    } catch (const NotYetImplemented& missing) {
      wrong = "task " + missing.task() + " is not written yet";
    } catch (const Error& error) {
      wrong = error.what();
    }
    if (wrong.empty()) return timed;
    if (!students) throw Error("the reference is wrong: " + wrong);
    right_ = false;
    report_ << JsonLine("wrong")
                   .add("problem", name)
                   .add("pass", problem.passes[pass].name)
                   .add("message", wrong);
    return timed;
  }

  const Plan plan_;
  Random seeds_;
  std::ofstream report_;
  std::vector<TimedRunner> students_, references_;
  bool right_ = true;
};

int run(int argc, char** argv) {
  Plan plan;
  std::optional<std::string> kind, dtype = "float32";
  std::optional<Strings> problems, students, references;
  std::optional<std::int64_t> turns = 20, warm_up = 500;
  std::filesystem::path output;
  Options options("submit_leaderboard",
                  "Measures a submission beside the reference; ./lab submit starts it.");
  options.choice("kind", "what the problems are", kind, {"attention", "softmax_matmul"});
  options.choice("dtype", "of the tensors", dtype, {"float32", "float16", "bfloat16"});
  options.names("problems", "as in 8x1x256x64,8x1x256x64:causal", problems);
  options.names("students", "files with the runners' commands, one for each pass", students);
  options.names("references", "the same of the reference", references);
  options.integer("turns", "timed calls of each pass", turns, 1, 1000);
  options.integer("warm-up-ms", "warm-up of each problem", warm_up, 0, 60000);
  options.file("output", "the report", output);
  if (!options.parse(argc, argv)) return 0;
  if (!kind || !problems || !students || !references || output.empty())
    throw OptionError("--kind, --problems, --students, --references and --output are needed");
  plan.asked = {.kind = *kind, .dtype = *dtype, .passes = students->size()};
  plan.problems = *problems;
  plan.students = *students;
  plan.references = *references;
  plan.turns = static_cast<int>(*turns);
  plan.warm_up_ms = static_cast<double>(*warm_up);
  const std::uint64_t seed = grading::random_bits() >> 1;
  std::ofstream(output) << JsonLine("begin").add("seed", seed);
  Measurement(plan, seed, output.string()).run();
  return 0;
}

}  // namespace
}  // namespace flash::leaderboard

int main(int argc, char** argv) {
  return flash::run_program([&] { return flash::leaderboard::run(argc, argv); });
}
