#include "benchmarking/core.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>
#include <thread>

#include "benchmarking/processor.hpp"
#include "common/error.hpp"

namespace flash {
namespace {

constexpr std::chrono::milliseconds kSlow(200);  // passes that take longer need no warm-up

std::string one_line(std::string text) {
  for (std::size_t end; (end = text.find('\n')) != std::string::npos;) text.replace(end, 1, "; ");
  return text;
}

// The task's `measure` promises OutOfMemory; operator new throws another exception.
template <class Call>
void with_out_of_memory(Call&& call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
    throw OutOfMemory("no host memory");
  }
}

// Mean and deviation of all passes from those of the turns; median and spread of the turns.
void sum_up(const std::vector<PassTime>& turns, PassResult& result) {
  double count = 0, sum = 0, squares = 0, peak = 0;
  std::vector<double> means;
  for (const PassTime& turn : turns) {
    count += turn.passes;
    sum += turn.passes * turn.mean_ms;
    means.push_back(turn.mean_ms);
    peak = std::max(peak, turn.peak_MiB.value_or(result.peak_MiB));
  }
  result.peak_MiB = peak;
  result.mean_ms = sum / count;
  for (const PassTime& turn : turns) {
    const double off = turn.mean_ms - result.mean_ms;
    squares += (turn.passes - 1) * turn.std_ms * turn.std_ms + turn.passes * off * off;
  }
  result.std_ms = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  result.median_ms = quantile(means, 0.5);
  result.spread_percent = 100 * (quantile(means, 0.9) - quantile(means, 0.1)) / result.median_ms;
}

class Session {
 public:
  Session(Contest& contest, Machine& machine, const Protocol& protocol)
      : contest_(contest),
        machine_(machine),
        protocol_(protocol),
        names_(contest.implementations()) {}

  void run() {
    for (std::size_t size = 0; size < contest_.sizes() && !ended_; ++size)
      contest_.run_size(size, [&] { run_size(size); });
  }

 private:
  void run_size(std::size_t size) {
    size_ = size;
    checked_ = false;
    step_ = 0;
    steps_ = static_cast<int>(names_.size()) * (1 + protocol_.turns());
    show("inputs and oracle");
    std::vector<Result> results(names_.size());
    for (std::size_t i = 0; i < names_.size(); ++i) {
      results[i].has_backward = contest_.has_backward(i);
      if (!contest_.takes_part(size, i)) results[i].fail("left out", "");
    }

    std::unique_ptr<Inputs> inputs;
    try {
      const MemoryCap cap(machine_, machine_.memory.in_use(), protocol_.memory_limit);
      with_out_of_memory([&] { inputs = contest_.inputs(size); });
    } catch (const OutOfMemory& error) {
      for (Result& result : results)
        if (result.has_forward)
          result.fail("OOM", std::string("the inputs do not fit: ") + error.what());
    }
    std::optional<double> others;
    if (inputs) {
      inputs->prepare_check();
      // Everything but the inputs does not count in the limit: what the check keeps, too.
      baseline_ = machine_.memory.in_use() - std::min(machine_.memory.in_use(), inputs->bytes());
      for (std::size_t i = 0; i < names_.size() && !ended_; ++i)
        if (results[i].has_forward) check(*inputs, i, results[i]);
      checked_ = true;
      const OtherPrograms programs;
      take_turns(*inputs, results);
      others = programs.share();
    }
    inputs.reset();
    machine_.memory.release_cached();
    contest_.report(size, results, others);
  }

  void show(const std::string& what) {
    contest_.progress(step_, steps_, contest_.name_of_size(size_) + ": " + what);
  }

  // Runs `call` with a runner of the implementation. What stops it becomes the result's status.
  template <class Call>
  void attempt(Inputs& inputs, std::size_t i, Result& result, Call&& call) {
    std::unique_ptr<Trial> trial = inputs.trial(i);
    Runner runner(machine_, *trial, result.has_backward, [&] { show(names_[i]); });
    try {
      const MemoryCap cap(machine_, baseline_, protocol_.memory_limit);
      return call(*trial, runner);
    } catch (const NotYetImplemented& missing) {
      if (checked_) throw;  // the passes are there: what measures is missing, so none gets a time
      result.missing_task = missing.task();
      result.fail("not started", "task " + missing.task() + " is not started",
                  runner.in_backward());
    } catch (const OutOfMemory& error) {
      result.fail(runner.in_backward() ? "OOM(backward)" : "OOM", error.what(),
                  runner.in_backward());
    } catch (const Unsupported& error) {
      result.fail("unsupported", error.what());
    } catch (const std::exception& error) {
      result.fail("error", error.what());
    }
    ended_ = !contest_.goes_on(result);
    trial.reset();
    if (!ended_) machine_.memory.release_cached();
  }

  // One pass of each kind from a cold start, compared with the oracle.
  void check(Inputs& inputs, std::size_t i, Result& result) {
    ++step_;
    const auto start = std::chrono::steady_clock::now();
    attempt(inputs, i, result, [&](Trial& trial, Runner& runner) {
      const auto check_pass = [&](void (Runner::*pass)(), Verdict (Trial::*verdict)()) {
        machine_.memory.release_kept();
        machine_.clock().synchronize();
        runner.reset_peak_memory();
        (runner.*pass)();
        machine_.clock().synchronize();
        PassResult& measured = runner.in_backward() ? result.backward : result.forward;
        measured.peak_MiB = mebibytes(runner.peak_memory_bytes());
        if (!runner.in_backward()) result.saved_MiB = mebibytes(runner.saved_bytes());
        trial.finish();
        result.verdict.add((trial.*verdict)());
        if (!result.verdict.wrong.empty()) throw Error("wrong result: " + result.verdict.wrong);
      };
      trial.poison = true;
      runner.prepare();
      check_pass(&Runner::forward, &Trial::check_forward);
      if (!result.has_backward) return;
      runner.prepare_backward();
      check_pass(&Runner::backward, &Trial::check_backward);
    });
    result.check_time = std::chrono::steady_clock::now() - start;
  }

  void take_turns(Inputs& inputs, std::vector<Result>& results) {
    std::vector<std::vector<PassTime>> forward(results.size()), backward(results.size());
    std::vector<double> peaks;
    std::vector<std::size_t> order(results.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    settle(inputs, results);
    const int turns = protocol_.turns();
    for (int turn = 0; turn < turns && !ended_; ++turn) {
      const int passes = protocol_.passes * (turn + 1) / turns - protocol_.passes * turn / turns;
      contest_.begin_turn(order);
      for (const std::size_t i : order) {
        if (ended_) break;
        ++step_;
        Result& result = results[i];
        if (!result.has_forward) continue;
        std::this_thread::sleep_for(protocol_.pause);
        const bool slow = !machine_.is_gpu && result.check_time > kSlow;
        const int warmups = slow ? 0 : (protocol_.warmups + turns - 1) / turns;
        attempt(inputs, i, result, [&](Trial&, Runner& runner) {
          const Turn measured = contest_.measure(runner, machine_.clock(), warmups, passes);
          if (measured.status == "OOM") throw OutOfMemory(measured.message);
          if (runner.forward_passes() < warmups + passes)
            throw Error(
                format("measure ran the work %d times; it had to be %d warm-ups and %d passes",
                       runner.forward_passes(), warmups, passes));
          keep(measured.forward, passes, forward[i]);
          if (!result.has_backward) return;
          if (measured.status != "ok") return result.fail(measured.status, measured.message, true);
          keep(measured.backward, passes, backward[i]);
        });
        if (const double peak = machine_.peak_gflops(protocol_.dtype); peak > 0)
          peaks.push_back(peak);
      }
      if (!ended_) contest_.end_turn(size_, turn);
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      Result& result = results[i];
      if (result.has_forward && forward[i].empty())  // "ok" where all ended before its turn
        result.fail(result.status == "ok" ? "not started" : result.status, result.message);
      if (result.has_forward) sum_up(forward[i], result.forward);
      if (result.has_backward) sum_up(backward[i], result.backward);
      if (!peaks.empty()) result.peak_gflops = quantile(peaks, 0.5);
    }
  }

  // Throws where a broken `measure` of a student gives itself away.
  static void keep(PassTime time, int passes, std::vector<PassTime>& turns) {
    if (!(time.mean_ms > 0 && time.std_ms >= 0 && std::isfinite(time.mean_ms + time.std_ms)))
      throw Error(format(
          "measure gave a mean of %g ms and a standard deviation of %g ms; the mean must be above "
          "0, the deviation at least 0",
          time.mean_ms, time.std_ms));
    time.passes = passes;
    turns.push_back(time);
  }

  // By time and not by count: a processor at rest needs milliseconds to reach its clock rate.
  void settle(Inputs& inputs, std::vector<Result>& results) {
    const auto end = std::chrono::steady_clock::now() + protocol_.settling;
    bool any = true;
    while (any) {
      any = false;
      for (std::size_t i = 0; i < results.size() && !ended_; ++i) {
        if (!results[i].has_forward) continue;
        any = true;
        attempt(inputs, i, results[i], [&](Trial&, Runner& runner) {
          runner.prepare();
          runner.forward();
          if (results[i].has_backward && std::chrono::steady_clock::now() < end) {
            runner.prepare_backward();
            runner.backward();
          }
          machine_.clock().synchronize();
        });
        if (std::chrono::steady_clock::now() >= end) return;
      }
    }
  }

  Contest& contest_;
  Machine& machine_;
  const Protocol protocol_;
  const Strings names_;
  std::size_t size_ = 0, baseline_ = 0;
  bool checked_ = false, ended_ = false;
  int step_ = 0, steps_ = 0;
};

}  // namespace

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / 0x1p20; }

void Verdict::add(const Verdict& other) {
  if (wrong.empty()) wrong = other.wrong;
  const auto larger = [](double a, double b) {
    return std::isnan(a) || b <= a ? a : b;
  };  // NaN stays
  scaled_error = larger(scaled_error, other.scaled_error);
  frobenius_error = larger(frobenius_error, other.frobenius_error);
}

Verdict verdict_of(const Comparison& comparison, const std::string& where) {
  return {comparison.pass ? "" : where + one_line(comparison.text), comparison.scaled_max,
          comparison.frobenius};
}

void Runner::prepare() {
  progress_();
  in_backward_ = false;
  with_out_of_memory([&] { trial_.prepare(); });
  machine_.evict_caches();
}

void Runner::forward() {
  ++forward_passes_;
  with_out_of_memory([&] { trial_.forward(); });
}

void Runner::prepare_backward() {
  if (!has_backward) throw OutOfMemory("there is no backward pass to measure");
  in_backward_ = true;
  with_out_of_memory([&] {
    trial_.finish();
    trial_.prepare_backward();
  });
  machine_.evict_caches();
}

void Runner::backward() {
  with_out_of_memory([&] { trial_.backward(); });
}

void Runner::reset_peak_memory() {
  before_ = machine_.memory.in_use();
  machine_.memory.reset_peak();
}

std::size_t Runner::peak_memory_bytes() {
  const std::size_t peak = machine_.memory.peak();
  return peak - std::min(peak, before_) + trial_.reserved_bytes();
}

Turn Contest::measure(Runner& runner, Clock& clock, int warmups, int passes) {
  Turn turn;
  const auto timed = [&](int pass, PassTime& time, auto&& call) {
    clock.synchronize();
    const double begin = clock.now_ms();
    call();
    clock.synchronize();
    if (pass >= warmups) time.mean_ms += (clock.now_ms() - begin) / passes;
  };
  for (int pass = 0; pass < warmups + passes; ++pass) {
    runner.prepare();
    timed(pass, turn.forward, [&] { runner.forward(); });
    if (!runner.has_backward) continue;
    runner.prepare_backward();
    timed(pass, turn.backward, [&] { runner.backward(); });
  }
  return turn;
}

void Result::fail(const std::string& new_status, std::string new_message, bool keep_forward) {
  status = new_status;
  message = one_line(std::move(new_message));
  has_forward = keep_forward;
  has_backward = false;
}

void run_contest(Contest& contest, Machine& machine, const Protocol& protocol) {
  Session(contest, machine, protocol).run();
}

}  // namespace flash
