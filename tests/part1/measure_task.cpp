// Task part1.measure: the cases of task 1.B, on a fake machine (harness/fake_clock.hpp): run() and prepare() only add to what
// is pending. All that happens is written down in a log.
#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "harness/fake_clock.hpp"
#include "harness/graded_case.hpp"
#include "part1_softmax_matmul/measure.hpp"

namespace flash::harness {
namespace {

class FakeMachine : public Work, public FakeClock {
 public:
  // How long pass number n takes, warm-up passes counted from 0 as well.
  std::function<double(int)> duration_ms = [](int) { return 1.0; };
  // What pass number n does besides; may throw.
  std::function<void(int)> on_run = [](int) {};
  // Bytes in use at the peak of pass n.
  std::function<std::size_t(int)> peak_of = [](int) { return std::size_t{0}; };

  // In the log: p prepare, r run, z reset_peak_memory.
  void prepare() override {
    log += "p";
    enqueue(kPrepareMs);
  }
  void run() override {
    log += "r";
    const int pass = runs++;
    enqueue(duration_ms(pass));
    peak_ = std::max(peak_, peak_of(pass));
    on_run(pass);
  }
  void reset_peak_memory() override {
    log += "z";
    peak_ = 0;
  }
  std::size_t peak_memory_bytes() override { return peak_; }

  int runs = 0;

 private:
  std::size_t peak_ = 0;
};

Verdict counts_passes(std::uint64_t seed) {
  FakeMachine machine;
  const int warmups = 1 + static_cast<int>(seed % 5), passes = 4 + static_cast<int>(seed % 7);
  (void)measure(machine, machine, warmups, passes);
  return expect(machine.runs == warmups + passes, "work.run() was called " + std::to_string(machine.runs) + " times; " +
                                                      std::to_string(warmups) + " warm-ups and " + std::to_string(passes) +
                                                      " passes are " + std::to_string(warmups + passes) + ".");
}

Verdict no_warmups(std::uint64_t) {
  FakeMachine machine;
  (void)measure(machine, machine, 0, 3);
  return expect(machine.runs == 3,
                "work.run() was called " + std::to_string(machine.runs) + " times for 0 warm-ups and 3 passes.");
}

Verdict synchronises_before_reading(std::uint64_t) {
  FakeMachine machine;
  (void)measure(machine, machine, 2, 5);
  std::size_t readings = 0;
  for (std::size_t i = 0; i < machine.log.size(); ++i) {
    if (machine.log[i] != 'n') continue;
    ++readings;
    if (i == 0 || machine.log[i - 1] != 's')
      return {false, "The clock was read without a clock.synchronize() right before it (reading number " +
                         std::to_string(readings) +
                         "): whatever is still in the queue is then not in the time, or is in the wrong one."};
  }
  return expect(readings > 0, "The clock was never read.");
}

Verdict waits_for_asynchronous_work(std::uint64_t seed) {
  FakeMachine machine;
  const std::vector<double> times = durations(seed, 6);
  machine.duration_ms = [&](int pass) { return times[pass]; };
  const Measurement result = measure(machine, machine, 0, 6);
  return expect_close("mean_ms, of passes that only enqueue their work,", result.mean_ms, mean(times), 1e-9);
}

Verdict warmups_do_not_count(std::uint64_t seed) {
  FakeMachine machine;
  const std::vector<double> times = durations(seed, 8);
  machine.duration_ms = [&](int pass) { return pass < 3 ? 500.0 : times[pass]; };
  const Measurement result = measure(machine, machine, 3, 5);
  return expect_close("mean_ms, after 3 slow warm-up passes,", result.mean_ms, mean({times.begin() + 3, times.end()}), 1e-9);
}

Verdict prepares_each_pass_untimed(std::uint64_t) {
  FakeMachine machine;
  const Measurement result = measure(machine, machine, 2, 3);
  std::string calls;
  for (const char c : machine.log)
    if (c == 'p' || c == 'r') calls += c;
  if (calls != "prprprprpr")
    return {false, "work.prepare() has to come before each pass, warm-up passes too: prepare, run, prepare, run, ..."};
  return expect_close("mean_ms, of passes of 1 ms with 1000 ms of prepare() before each,", result.mean_ms, 1, 1e-9);
}

Verdict sample_deviation(std::uint64_t seed) {
  FakeMachine machine;
  const std::vector<double> times = durations(seed, 7);
  machine.duration_ms = [&](int pass) { return times[pass]; };
  const Measurement result = measure(machine, machine, 0, 7);
  return expect_close("std_ms (the sample deviation, divided by passes - 1)", result.std_ms, deviation(times), 1e-9);
}

Verdict single_pass(std::uint64_t) {
  FakeMachine machine;
  const Measurement result = measure(machine, machine, 1, 1);
  if (!(result.mean_ms == 1)) return {false, "mean_ms of one pass of 1 ms is " + number(result.mean_ms) + "."};
  return expect(result.std_ms == 0, "std_ms of a single pass is " + number(result.std_ms) + "; it must be 0.");
}

Verdict small_spread(std::uint64_t seed) {
  FakeMachine machine;
  std::vector<double> times;
  for (const double d : durations(seed, 20)) times.push_back(1e6 + 1e-3 * d);
  machine.duration_ms = [&](int pass) { return times[pass]; };
  const Measurement result = measure(machine, machine, 0, 20);
  // The clock itself rounds to 2e-9 ms here, at times near 2e7 ms; the deviation is about 3e-4 ms.
  return expect_close("std_ms of passes of 1000 s that differ by a microsecond", result.std_ms, deviation(times), 1e-3);
}

Verdict peak_of_timed_passes(std::uint64_t) {
  FakeMachine machine;
  machine.peak_of = [](int pass) { return static_cast<std::size_t>((pass < 2 ? 64 : pass == 3 ? 24.5 : 10) * kMiB); };
  const Measurement result = measure(machine, machine, 2, 4);
  return expect(result.peak_MiB == 24.5,
                "peak_MiB is " + number(result.peak_MiB) +
                    "; it must be 24.5, the most in any timed pass (the warm-up had 64, the other passes 10).");
}

Verdict out_of_memory(int failing_pass) {
  FakeMachine machine;
  machine.on_run = [&](int pass) {
    if (pass == failing_pass) throw OutOfMemory("no room for 1 GiB");
  };
  const Measurement result = measure(machine, machine, 2, 3);
  if (!result.out_of_memory) return {false, "out_of_memory is false although work.run() threw OutOfMemory."};
  if (result.message.find("no room for 1 GiB") == std::string::npos)
    return {false, "message is '" + result.message + "'; it must hold what OutOfMemory said, 'no room for 1 GiB'."};
  return expect(result.mean_ms == 0 && result.std_ms == 0 && result.peak_MiB == 0,
                "After OutOfMemory every number of the measurement must be 0.");
}

Verdict out_of_memory_when_waiting(std::uint64_t) {
  FakeMachine machine;
  machine.on_synchronize = [&] {
    if (machine.runs > 0) throw OutOfMemory("the device has no room");
  };
  const Measurement result = measure(machine, machine, 1, 2);
  return expect(result.out_of_memory, "OutOfMemory that only shows at clock.synchronize() must be a result as well.");
}

Verdict other_errors_pass(std::uint64_t) {
  FakeMachine machine;
  machine.on_run = [](int) { throw std::runtime_error("a bug"); };
  try {
    (void)measure(machine, machine, 1, 2);
  } catch (const NotYetImplemented&) {
    throw;
  } catch (const std::runtime_error& error) {
    return expect(std::string(error.what()) == "a bug", std::string("The exception came out changed: ") + error.what());
  }
  return {false, "An exception other than OutOfMemory is a bug in the work; it must reach the caller, not vanish."};
}

}  // namespace

TaskUnderTest task_under_test() {
  return {.id = "part1.measure",
          .cases = {
              {"counts warm-ups and passes", 1, counts_passes},
              {"no warm-ups", 1, no_warmups},
              {"synchronises before each reading of the clock", 1, synchronises_before_reading},
              {"waits for asynchronous work", 1, waits_for_asynchronous_work},
              {"warm-up passes do not count", 1, warmups_do_not_count},
              {"prepares each pass outside of the time", 1, prepares_each_pass_untimed},
              {"standard deviation", 1, sample_deviation},
              {"a single pass has no deviation", 1, single_pass},
              {"a small spread of large times", 1, small_spread},
              {"peak memory of the timed passes", 1, peak_of_timed_passes},
              {"out of memory in a warm-up pass", 1, [](std::uint64_t) { return out_of_memory(0); }},
              {"out of memory in a timed pass", 1, [](std::uint64_t) { return out_of_memory(3); }},
              {"out of memory while waiting", 1, out_of_memory_when_waiting},
              {"other errors reach the caller", 1, other_errors_pass},
          }};
}

}  // namespace flash::harness
