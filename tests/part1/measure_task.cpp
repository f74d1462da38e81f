// Task part1.measure: the cases of task 1.B, on a fake machine (harness/cases/measure_cases.hpp).
// All that happens is written down in a log.
#include <utility>

#include "harness/cases/measure_cases.hpp"
#include "part1_softmax_matmul/measure.hpp"

namespace flash::harness {
namespace {

class FakeMachine : public FakeMachineFor<Work> {
 public:
  Passes passes;

  void run() override { enqueue("r", passes); }

  Measurement measured(int warmups, int count) { return measure(*this, *this, warmups, count); }
};

Verdict counts_passes(int warmups, int passes) {
  FakeMachine machine;
  (void)machine.measured(warmups, passes);
  return expect(machine.passes.count == warmups + passes,
                "work.run() was called " + std::to_string(machine.passes.count) + " times; " +
                    std::to_string(warmups) + " warm-ups and " + std::to_string(passes) +
                    " passes are " + std::to_string(warmups + passes) + ".");
}

// Passes of different lengths after warm-up passes of 500 ms, and the mean.
Verdict mean_of(std::uint64_t seed, const char* what, int warmups, int passes) {
  FakeMachine machine;
  const std::vector<double> times = durations(seed, passes);
  machine.passes.ms = [&](int pass) { return pass < warmups ? 500.0 : times[pass - warmups]; };
  return expect_close(what, machine.measured(warmups, passes).mean_ms, mean(times));
}

Verdict prepares_each_pass_untimed(std::uint64_t) {
  FakeMachine machine;
  const Measurement result = machine.measured(2, 3);
  if (machine.calls("pr") != "prprprprpr")
    return {false,
            "work.prepare() has to come before each pass, warm-up passes too: prepare, run, "
            "prepare, run, ..."};
  return expect_close("mean_ms, of passes of 1 ms with 1000 ms of prepare() before each,",
                      result.mean_ms, 1);
}

Verdict deviation_of(const std::vector<double>& times, const char* what, double relative) {
  FakeMachine machine;
  machine.passes.ms = [&](int pass) { return times[pass]; };
  const Measurement result = machine.measured(0, static_cast<int>(times.size()));
  return expect_close(what, result.std_ms, deviation(times), relative);
}

Verdict single_pass(std::uint64_t) {
  const Measurement result = FakeMachine().measured(1, 1);
  return first_failure({expect_exactly("mean_ms of one pass of 1 ms", result.mean_ms, 1),
                        expect_exactly("std_ms of a single pass", result.std_ms, 0)});
}

// A wait between a pass and a reset of the peak behind it.
Verdict waits_before_a_reset(const std::string& log) {
  bool waited = true;
  for (const char call : log) {
    if (call == 'z' && !waited)
      return {false,
              "work.reset_peak_memory() is called while a warm-up pass may still run, and then its "
              "memory counts: call clock.synchronize() right before it."};
    if (call == 'r' || call == 's') waited = call == 's';
  }
  return {true, ""};
}

Verdict peak_of_timed_passes(std::uint64_t seed) {
  FakeMachine machine;
  const double most = drawn_MiB(seed);
  machine.passes.peak_MiB = [most](int pass) { return pass < 2 ? 6400 : pass == 3 ? most : 10; };
  const double peak = machine.measured(2, 4).peak_MiB;
  const Verdict waited = waits_before_a_reset(machine.log);
  if (peak != most && !waited.pass) return waited;
  return expect_exactly(
      "peak_MiB", peak, most,
      ", the most in any timed pass (the warm-up had 6400, the other passes 10).");
}

Verdict out_of_memory(int failing_pass) {
  FakeMachine machine;
  machine.passes.run_out_in(failing_pass);
  machine.passes.peak_MiB = [](int) { return 8; };
  const Measurement result = machine.measured(2, 3);
  return first_failure({
      expect(result.out_of_memory, "out_of_memory is false although work.run() threw OutOfMemory."),
      expect(result.message.find(kNoMemory) != std::string::npos,
             "message is '" + result.message + "'; it must hold what OutOfMemory said, '" +
                 kNoMemory + "'."),
      expect(result.mean_ms == 0 && result.std_ms == 0 && result.peak_MiB == 0,
             "After OutOfMemory every number of the measurement must be 0, peak_MiB too."),
  });
}

// Memory runs out in the `which`-th call of prepare(), or of synchronize(), after so many passes;
// there may be no such call.
Verdict runs_out_between_passes(bool of_prepare, int passes, int which) {
  FakeMachine machine;
  const std::string call = of_prepare ? "work.prepare()" : "clock.synchronize()";
  bool thrown = false;
  (of_prepare ? machine.on_prepare : machine.on_synchronize) = [&] {
    if (machine.passes.count != passes || --which != 0) return;
    thrown = true;
    throw OutOfMemory(kNoMemory);
  };
  const std::string otherwise =
      "OutOfMemory that comes from " + call + " must be a result, as one from work.run().";
  try {
    return expect(machine.measured(1, 2).out_of_memory == thrown, otherwise);
  } catch (const OutOfMemory&) {
    return {false, otherwise};
  }
}

Verdict out_of_memory_when_waiting(std::uint64_t) {
  for (const int passes : {1, 2, 3})
    for (const int which : {1, 2})
      if (Verdict verdict = runs_out_between_passes(false, passes, which); !verdict.pass)
        return verdict;
  return first_failure({runs_out_between_passes(true, 0, 1), runs_out_between_passes(true, 2, 1)});
}

Verdict other_errors_pass(std::uint64_t) {
  FakeMachine machine, unsupported;
  return first_failure({reaches_the_caller<std::runtime_error>(
                            machine.passes, [&] { (void)machine.measured(1, 2); }),
                        reaches_the_caller<Unsupported>(
                            unsupported.passes, [&] { (void)unsupported.measured(1, 2); })});
}

// ---- a list of configurations -------------------------------------------------------------------

struct Part1 {
  using Configuration = flash::Configuration;
  using Row = flash::Row;
  using Measurement = flash::Measurement;
  static std::string status(const Row& row) { return row.status; }
  static std::string message(const Row& row) { return row.message; }
  static std::vector<double> numbers(const Row& row) {
    return {row.measurement.mean_ms, row.measurement.std_ms, row.measurement.peak_MiB};
  }
};

Planned<Part1> measured(const std::string& name, double ms) {
  return {.name = name,
          .how = "returned a measurement",
          .run = [ms] { return Measurement{.mean_ms = ms, .std_ms = ms / 8, .peak_MiB = 3 * ms}; },
          .numbers = {ms, ms / 8, 3 * ms}};
}

Planned<Part1> ran_out() {
  return {.name = "one that ran out of memory",
          .how = "returned a measurement with out_of_memory",
          .run = [] { return Measurement{.out_of_memory = true, .message = kNoMemory}; },
          .status = "OOM",
          .message = kNoMemory};
}

// ---- the benchmark's runs -----------------------------------------------------------------------

Verdict lists(const std::vector<int>& blocks, bool all) {
  std::vector<std::pair<Index, int>> wanted, listed;
  for (const Index d2 : {64, 128, 256, 512, 1024, 2048, 4096, 8192})
    for (const int block : blocks) wanted.emplace_back(d2, block);
  for (const BenchmarkRun& run : list_of_runs()) listed.emplace_back(run.d2, run.block);
  return lists_each_once("list_of_runs()", listed, wanted, all, [](const auto& run) {
    return "d2 " + std::to_string(run.first) +
           (run.second == 0 ? ", unfused" : ", blocks of " + std::to_string(run.second));
  });
}

}  // namespace

TaskUnderTest measure_task() {
  const auto some_warmups = [](auto seed) {
    return counts_passes(6 + static_cast<int>(seed % 5), 4 + static_cast<int>(seed % 7));
  };
  const auto asynchronous = [](auto seed) {
    return mean_of(seed, "mean_ms, of passes that only enqueue their work,", 0, 6);
  };
  const auto after_warmups = [](auto seed) {
    return mean_of(seed, "mean_ms, after 3 slow warm-up passes,", 3, 5);
  };
  const auto sample_deviation = [](auto seed) {
    return deviation_of(durations(seed, 7), "std_ms (the sample deviation, divided by passes - 1)",
                        1e-9);
  };
  const auto small_spread = [](auto seed) {
    return deviation_of(long_durations(seed, 20),
                        "std_ms of passes of 1000 s that differ by a microsecond", 1e-3);
  };
  const auto later = [=](auto of) {
    return begin_anew(of, {after_warmups, sample_deviation, peak_of_timed_passes,
                           [](auto) { return out_of_memory(3); }});
  };
  TaskUnderTest task{
      .id = "part1.measure",
      .cases = {
          {"counts warm-ups and passes", "which passes count", some_warmups},
          {"no warm-ups", "which passes count", [](auto) { return counts_passes(0, 3); }},
          {"synchronises before each reading of the clock", "waiting", synchronises<FakeMachine>},
          {"waits for asynchronous work", "waiting", asynchronous},
          {"warm-up passes do not count", "which passes count", after_warmups},
          {"prepares each pass outside of the time", "which passes count",
           prepares_each_pass_untimed},
          {"a later measurement begins anew", "which passes count", later},
          {"standard deviation", "statistics", sample_deviation},
          {"a single pass has no deviation", "statistics", single_pass},
          {"a small spread of large times", "statistics", small_spread},
          {"peak memory of the timed passes", "peak memory", peak_of_timed_passes},
          {"out of memory in a warm-up pass", "out of memory",
           [](auto) { return out_of_memory(0); }},
          {"out of memory in a timed pass", "out of memory", [](auto) { return out_of_memory(3); }},
          {"out of memory while waiting", "out of memory", out_of_memory_when_waiting},
          {"other errors reach the caller", "out of memory", other_errors_pass},
      }};
  const Planned<Part1> good = measured("a good one", 2);
  auto failing = failures_between(good);
  failing.insert(failing.end(), {ran_out(), measured("the last one", 3)});
  add_cases_of_a_list(task, {good, measured("blocks of 16", 4), measured("blocks of 64", 1)},
                      failing);
  const char* const runs = "the benchmark's runs";
  task.add("each d2 with each size of blocks", runs, [](auto) {
    return lists({16, 32, 64}, false);
  });
  task.add("each d2 without blocks", runs, [](auto) { return lists({0}, false); });
  task.add("no run that was not asked for", runs, [](auto) {
    return first_failure({lists({0, 16, 32, 64}, true), lists({0, 16, 32, 64}, true)});
  });
  return task;
}

}  // namespace flash::harness
