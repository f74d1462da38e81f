// The judge of the leaderboard: a contest (benchmarking/core.hpp) between a student's functions and
// the reference's. ./lab submit starts it and makes a receipt of the samples that it writes.
//
// This process owns inputs, oracle and clock, and loads no student code: each pass of both is
// called in a runner of its own (harness/judge/timed.hpp). Each turn has new inputs, a random order
// of the two, a check of all results, and for each pass one call with the same tensors that has
// nothing to do, whose time is the cost of the exchange. In the first call and in a quarter of the
// turns the student's runner gets two other calls, which nobody times: of a neighbouring shape, and
// of one far from it, with all data of graded kinds. A wrong result ends the run: there is no time
// for it.
//
// The report is a line of JSON for each event: "begin", "sample", "wrong", "complete". Without
// "complete" nothing counts.
#include <chrono>
#include <exception>
#include <fstream>

#include "benchmarking/core.hpp"
#include "benchmarking/leaderboard/problem.hpp"
#include "benchmarking/options.hpp"
#include "common/error.hpp"
#include "common/inputs.hpp"
#include "common/json_line.hpp"
#include "harness/judge/call.hpp"

namespace flash::leaderboard {
namespace {

using grading::Timed;
using grading::TimedRunner;

constexpr double kSecondsACall = 20;
constexpr std::size_t kReference = 0, kStudent = 1;
constexpr const char* kPasses[] = {"forward", "backward"};

struct Plan {
  std::string kind, dtype;
  Strings problems;
  Strings runners[2];  // files with the commands of the runners, one for each pass
  bool is_mark;
  Protocol protocol;

  std::size_t passes() const { return runners[kStudent].size(); }
};

// A board's name of a problem, with or without ":causal" behind the sizes:
//   attention        "8x1x256x64:causal", batch x heads x sequence x head_dim
//   softmax_matmul   "1x2048x64x512", batch x d1 x d2 x d3
// A neighbour has one more or one less of everything; a far one has a half of it or more.
std::unique_ptr<Problem> problem_of(const Plan& plan, const std::string& name, bool with_backward,
                                    Random* neighbour = nullptr, bool is_far = false) {
  long a = 0, b = 0, c = 0, d = 0;
  int end = 0;
  const int read = std::sscanf(name.c_str(), "%6ldx%6ldx%6ldx%6ld%n", &a, &b, &c, &d, &end);
  const std::string rest = name.substr(static_cast<std::size_t>(end));
  if (read != 4 || std::min({a, b, c, d}) < 1 || (!rest.empty() && rest != ":causal"))
    throw ArgumentError("a problem is '" + name +
                        "'; it must be four sizes of at least 1, as in 8x1x256x64");
  if (plan.kind == "softmax_matmul") {
    if (!rest.empty() || plan.passes() != 1)
      throw ArgumentError("softmax_matmul has one pass, and no mask");
  }
  const auto near = [=](Index size) {
    if (is_far) return std::max<Index>(1, size - neighbour->below(size / 2 + 1));
    return neighbour == nullptr ? size : std::max<Index>(1, size + 2 * neighbour->below(2) - 1);
  };
  if (plan.kind == "softmax_matmul")
    return make_problem(SoftmaxMatmulShape{near(a), near(b), near(c), near(d)}, plan.is_mark);
  AttentionProblem problem{.shape = {near(a), near(b), near(c), near(c), near(d)},
                           .options = {.causal = !rest.empty()}};
  for (const DType each : {DType::kFloat32, DType::kFloat16, DType::kBFloat16})
    if (plan.dtype == to_string(each)) problem.dtype = each;
  return make_problem(problem, with_backward, plan.is_mark);
}

// The words of a command, one a line of the file.
Strings command_in(const std::string& path) {
  std::ifstream file(path);
  Strings words;
  for (std::string line; std::getline(file, line);) words.push_back(line);
  if (words.empty()) throw OptionError("the file of a runner's command is empty: " + path);
  return words;
}

// Its clock goes on only while a runner works.
class JudgesMachine final : public Machine, public Clock {
 public:
  Clock& clock() override { return *this; }
  void synchronize() override {}
  double now_ms() override { return milliseconds; }

  double milliseconds = 0;
};

class Board final : public Contest {
 public:
  Board(const Plan& plan, const std::string& output)
      : plan_(plan), random_(grading::random_bits()), report_(output) {
    report_ << JsonLine("begin");
    for (const std::size_t who : {kStudent, kReference})
      for (const std::string& file : plan.runners[who])
        runners_[who].emplace_back(command_in(file), kSecondsACall, memory_of_calls());
  }

  void run() {
    run_contest(*this, machine_, plan_.protocol);
    if (is_right_) report_ << JsonLine("complete");
  }

  Strings implementations() const override { return {"reference", "student"}; }
  bool has_backward(std::size_t) const override { return plan_.passes() == 2; }
  std::size_t sizes() const override { return plan_.problems.size(); }
  std::string name_of_size(std::size_t size) const override { return plan_.problems[size]; }
  std::unique_ptr<Inputs> inputs(std::size_t size) override {
    name_ = name_of_size(size);
    problem_ = problem_of(plan_, name_, plan_.passes() == 2);
    return std::make_unique<InputsOfTurn>(*this);
  }

  void begin_turn(std::vector<std::size_t>& order) override {
    draw();
    if (random_.below(4) == 0) extra_calls_ = plan_.passes();
    if (random_.bits() & 1) std::swap(order[0], order[1]);
  }

  void end_turn(std::size_t size, int turn) override {
    const Rates rates = rates_now();
    for (std::size_t pass = 0; pass < plan_.passes(); ++pass) {
      grading::Call empty = problem_->call(pass);
      empty.function = grading::kNothing;
      const Timed nothing = runners_[kReference][pass].call(empty);
      JsonLine sample("sample");
      sample.add("problem", name_of_size(size))
          .add("pass", std::string(kPasses[pass]))
          .add("turn", turn)
          .add("exchange_ms", nothing.wall_ms)
          .add("exchange_processor_ms", nothing.processor_ms)
          .add("extra_bytes", times_[kStudent][pass].extra_bytes)
          .add("peak_gflops", rates.peak_gflops)
          .add("bandwidth_gbs", rates.bandwidth_gbs);
      for (const std::size_t who : {kStudent, kReference}) {
        const std::string name = implementations()[who];
        const Timed& timed = times_[who][pass];
        sample.add(name + "_ms", timed.wall_ms)
            .add(name + "_processor_ms", timed.processor_ms)
            .add(name + "_wait_ms", timed.wait_ms);
      }
      report_ << sample;
    }
  }

  bool goes_on(const Result&) override {
    if (failure_) std::rethrow_exception(failure_);
    return false;
  }

  // A student's wrong result or exception is an event; the reference's is a mistake of the judge.
  void report(std::size_t size, const std::vector<Result>& results,
              std::optional<double>) override {
    const auto failed = [](const Result& one) {
      return one.status != "ok" && one.status != "not started";
    };
    if (failed(results[kReference]))
      throw Error("the reference is wrong: " + results[kReference].message);
    if (!failed(results[kStudent])) return;
    is_right_ = false;
    report_ << JsonLine("wrong")
                   .add("problem", name_of_size(size))
                   .add("pass", std::string(kPasses[last_pass_]))
                   .add("message", results[kStudent].message);
  }

 private:
  class CallsOfRunners final : public Trial {
   public:
    CallsOfRunners(Board& board, std::size_t who) : board_(board), who_(who) {}
    void prepare() override {}
    void forward() override { board_.call(who_, 0); }
    void backward() override { board_.call(who_, 1); }
    Verdict check_forward() override { return {}; }  // each call is checked

   private:
    Board& board_;
    const std::size_t who_;
  };

  class InputsOfTurn final : public Inputs {
   public:
    explicit InputsOfTurn(Board& board) : board_(board) {}
    void prepare_check() override {
      board_.draw();
      board_.extra_calls_ = board_.plan_.passes();
    }
    std::unique_ptr<Trial> trial(std::size_t who) override {
      return std::make_unique<CallsOfRunners>(board_, who);
    }

   private:
    Board& board_;
  };

  void draw() { problem_->draw(Cipher::of_system(), false); }

  // One call with its check, and another one where the turn has it.
  void call(std::size_t who, std::size_t pass) {
    last_pass_ = pass;
    times_[who][pass] = checked(who, pass, *problem_);
    machine_.milliseconds += times_[who][pass].wall_ms;
    if (who != kStudent || extra_calls_ == 0 || plan_.is_mark) return;
    --extra_calls_;
    for (const bool is_far : {false, true}) {
      const auto other = problem_of(plan_, name_, pass == 1, &random_, is_far);
      other->draw(Cipher::of_system(), true);
      try {
        checked(who, pass, *other);
      } catch (const Error& error) {
        throw Error(std::string("with another shape than the board's, and graded data: ") +
                    error.what());
      }
    }
  }

  Timed checked(std::size_t who, std::size_t pass, Problem& problem) {
    try {
      const Timed timed = runners_[who][pass].call(problem.call(pass));
      if (const std::string wrong = problem.wrong(pass); !wrong.empty()) throw Error(wrong);
      return timed;
    } catch (const NotYetImplemented& missing) {
      throw Error("task " + missing.task() + " is not written yet");
    } catch (const Error&) {
      throw;
    } catch (...) {  // the judge's own
      failure_ = std::current_exception();
      throw;
    }
  }

  const Plan plan_;
  Random random_;
  std::ofstream report_;
  JudgesMachine machine_;
  std::vector<TimedRunner> runners_[2];
  std::string name_;  // of the problem
  std::unique_ptr<Problem> problem_;
  std::size_t extra_calls_ = 0;  // still to be made
  Timed times_[2][2];
  std::size_t last_pass_ = 0;
  std::exception_ptr failure_;
  bool is_right_ = true;
};

int run(int argc, char** argv) {
  std::optional<std::string> kind, dtype = "float32";
  std::optional<Strings> problems, students, references;
  std::optional<std::int64_t> turns = 20, warm_up = 500;
  std::filesystem::path output;
  bool is_mark = false;
  Options options("submit_leaderboard",
                  "Measures a submission beside the reference; ./lab submit starts it.");
  options.choice("kind", "what the problems are", kind, {"attention", "softmax_matmul"});
  options.choice("dtype", "of the tensors", dtype, {"float32", "float16", "bfloat16"});
  options.names("problems", "as in 8x1x256x64,8x1x256x64:causal", problems);
  options.names("students", "files with the runners' commands, one for each pass", students);
  options.names("references", "the same of the reference", references);
  options.integer("turns", "timed calls of each pass", turns, 1, 1000);
  options.integer("warm-up-ms", "warm-up of each problem", warm_up, 0, 60000);
  options.flag("mark", "the student's passes are rungs: no unannounced calls, -inf or NaN",
               is_mark);
  options.file("output", "the report", output);
  if (!options.parse(argc, argv)) return 0;
  if (!kind || !problems || !students || !references || output.empty())
    throw OptionError("--kind, --problems, --students, --references and --output are needed");
  if (students->size() != references->size() || students->size() > std::size(kPasses))
    throw OptionError("a runner is needed for each pass");
  const int all_turns = static_cast<int>(*turns);
  const Plan plan{.kind = *kind,
                  .dtype = *dtype,
                  .problems = *problems,
                  .runners = {*references, *students},
                  .is_mark = is_mark,
                  .protocol = {.warmups = 0,
                               .passes = all_turns,
                               .most_turns = all_turns,
                               .settling = std::chrono::milliseconds(*warm_up)}};
  Board(plan, output.string()).run();
  return 0;
}

}  // namespace
}  // namespace flash::leaderboard

int main(int argc, char** argv) {
  return flash::run_program([&] { return flash::leaderboard::run(argc, argv); });
}
