// The core of every timed comparison: problem x implementations x sizes. Two kinds stand on it: the
// benchmarks (benchmark.hpp), which call passes of the registry in this process and write a CSV,
// and the leaderboard (leaderboard/submit_leaderboard.cpp), whose implementations are a student's
// library and the reference, each in runners of its own.
//
//   for each size: make the inputs, check each implementation once against the oracle,
//                  time turns of all implementations (A B C A B C ...), report
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "benchmarking/machine.hpp"
#include "benchmarking/program.hpp"
#include "common/compare.hpp"

namespace flash {

// ---- What a problem gives to the core -----------------------------------------------------------

// Whether a result is right, and how far it is from the oracle.
struct Verdict {
  std::string wrong;  // empty when it is right, else what is wrong, in one line
  double scaled_error = 0, frobenius_error = 0;

  // Keeps the first thing that is wrong, and the larger of the errors.
  void add(const Verdict& other);
};

// The verdict of rows of a result, each element of which may be off by `bound` times its magnitude;
// a NaN or an infinity of `want` has to be there. `where` begins the line of a wrong result, and
// `rows` is what a row is called.
Verdict verdict_of(const Comparison& comparison, const std::string& where);
template <class T, int Rank>
Verdict verdict_of(const T* got, Tensor<double, Rank> want, Tensor<double, Rank> magnitude,
                   double bound, const std::string& rows, const std::string& where) {
  const Index columns = want.extent(Rank - 1);
  std::vector<T> finite(got, got + want.size());
  for (Index i = 0; i < want.size(); ++i) {
    double& wanted = want.data()[i];
    if (std::isfinite(wanted)) continue;
    const double value = static_cast<double>(got[i]);
    if (std::isnan(wanted) ? !std::isnan(value) : value != wanted)
      return {where + format("%s %lld, column %lld is %g, expected %g", rows.c_str(),
                             static_cast<long long>(i / columns),
                             static_cast<long long>(i % columns), value, wanted)};
    finite[static_cast<std::size_t>(i)] = T{};
    wanted = 0, magnitude.data()[i] = 1;
  }
  return verdict_of(compare(finite.data(), want.data(), {want.size() / columns, columns},
                            {.max_scaled = bound,
                             .max_frobenius = frobenius_bound(bound, want, magnitude),
                             .axes = {rows, "column"},
                             .blocks = {},
                             .magnitude = magnitude.data()}),
                    where);
}

// One implementation on one problem. Outputs and workspace are made in prepare() and
// prepare_backward(), outside of what is timed.
class Trial {
 public:
  virtual ~Trial() = default;

  bool poison = false;  // outputs are made full of NaN, so that what a pass does not write is seen

  virtual void prepare() = 0;         // drops what earlier passes left
  virtual void forward() = 0;         // may return before its work is done
  virtual void prepare_backward() {}  // keeps what forward() saved
  virtual void backward() {}
  virtual std::size_t saved_bytes() const { return 0; }
  virtual Verdict check_forward() = 0;
  virtual Verdict check_backward() { return {}; }

  // A pass that makes outputs of its own copies them to ours after its time was taken.
  void finish() {
    if (memory_.deliver) std::exchange(memory_.deliver, nullptr)();
  }
  // The memory that the last prepared pass adds to its inputs, without what it allocates while it
  // runs: workspace and outputs. A pass that makes its own outputs says how much they took.
  std::size_t reserved_bytes() const {
    return workspace_bytes_ + memory_.own_peak_bytes + (memory_.deliver ? 0 : output_bytes_);
  }

 protected:
  PassMemory memory_;
  std::size_t workspace_bytes_ = 0, output_bytes_ = 0;
};

// The inputs of one problem, in the machine's memory.
class Inputs {
 public:
  virtual ~Inputs() = default;
  virtual std::size_t bytes() const { return 0; }
  virtual void prepare_check() = 0;  // computes what is right: may take seconds
  virtual std::unique_ptr<Trial> trial(std::size_t implementation) = 0;
};

// A trial as it is measured: with caches evicted and memory metered.
class Runner {
 public:
  Runner(Machine& machine, Trial& trial, bool with_backward, std::function<void()> progress)
      : has_backward(with_backward),
        machine_(machine),
        trial_(trial),
        progress_(std::move(progress)) {}

  const bool has_backward;

  void prepare();
  void forward();
  void prepare_backward();  // throws OutOfMemory where there is no backward pass to measure
  void backward();
  void reset_peak_memory();
  std::size_t peak_memory_bytes();  // the most that a pass needed since then, beside its inputs
  std::size_t saved_bytes() const { return trial_.saved_bytes(); }

  bool in_backward() const { return in_backward_; }
  int forward_passes() const { return forward_passes_; }

 private:
  Machine& machine_;
  Trial& trial_;
  std::function<void()> progress_;
  std::size_t before_ = 0;
  bool in_backward_ = false;
  int forward_passes_ = 0;
};

// What a turn measured of a pass: the mean and the sample standard deviation of its timed passes.
struct PassTime {
  double mean_ms = 0, std_ms = 0;
  std::optional<double> peak_MiB = std::nullopt;  // else the check's counts
  int passes = 0;                                 // set by the core
};
struct Turn {
  std::string status = "ok", message = "";  // or "OOM" or "OOM(backward)"
  PassTime forward = {}, backward = {};
};

// ---- What the core makes of it ------------------------------------------------------------------

struct PassResult {
  double mean_ms = 0, std_ms = 0;            // of all timed passes
  double median_ms = 0, spread_percent = 0;  // of the turns' means
  double peak_MiB = 0;
};

// What one implementation did on one problem.
struct Result {
  std::string status = "ok";  // the CSV's; "not started" and "left out" are no rows
  std::string message;        // in one line; empty when ok
  std::string missing_task;   // what is not started
  bool has_forward = true, has_backward = true;  // measured, or still to be measured
  PassResult forward, backward;
  double saved_MiB = 0;
  Verdict verdict;
  std::chrono::steady_clock::duration check_time{0};  // of both passes, and of their comparison
  double peak_gflops = 0;  // of the processor, in the same turns; 0 where it is not known

  void fail(const std::string& new_status, std::string new_message, bool keep_forward = false);
};

// How it is measured.
struct Protocol {
  int warmups = 1, passes = 5;  // of each kind, spread over the turns
  int most_turns = 10;
  std::chrono::milliseconds settling{50};  // passes of all before the first turn, for this long
  std::chrono::milliseconds pause{0};      // before each share
  DType dtype = DType::kFloat32;           // of the processor's peak
  std::optional<std::size_t> memory_limit;

  int turns() const { return std::min(passes, most_turns); }
};

// What is compared.
class Contest {
 public:
  virtual ~Contest() = default;

  virtual Strings implementations() const = 0;
  virtual bool has_backward(std::size_t) const { return false; }  // of an implementation
  virtual std::size_t sizes() const = 0;
  virtual std::string name_of_size(std::size_t size) const = 0;  // "seq_len 256, causal"
  virtual std::unique_ptr<Inputs> inputs(std::size_t size) = 0;  // may throw OutOfMemory
  virtual bool takes_part(std::size_t /*size*/, std::size_t /*implementation*/) const {
    return true;
  }
  // Calls measure_size() once, which measures all implementations and reports.
  virtual void run_size(std::size_t /*size*/, const std::function<void()>& measure_size) {
    measure_size();
  }

  // One turn. By default the core measures, without a task of the course.
  virtual Turn measure(Runner& runner, Clock& clock, int warmups, int passes);

  // Around a turn; `order` is that of the implementations.
  virtual void begin_turn(std::vector<std::size_t>& /*order*/) {}
  virtual void end_turn(std::size_t /*size*/, int /*turn*/) {}

  virtual void progress(int /*done*/, int /*of*/, const std::string& /*what*/) {}
  // Whether the others are measured after this failure.
  virtual bool goes_on(const Result& failed) = 0;
  // All results of a size, and the share of the processors that other programs had meanwhile.
  virtual void report(std::size_t size, const std::vector<Result>& results,
                      std::optional<double> others) = 0;
};

// Returns after the last size, or where the contest does not go on.
void run_contest(Contest& contest, Machine& machine, const Protocol& protocol);

double mebibytes(std::size_t bytes);

}  // namespace flash
