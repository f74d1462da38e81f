// Task part3.measure_attention: the cases of task 3.B, on a fake machine
// (harness/cases/measure_cases.hpp) whose times, peaks and failures are known for each pass.
#include <algorithm>

#include "harness/cases/measure_cases.hpp"
#include "part3_flash_cuda/measure_attention.hpp"

namespace flash::harness {
namespace {

constexpr double kSavedMiB = 12.25;
// Of forward passes that are not measured: far more than any that is.
constexpr double kUncountedMs = 500;

// A forward pass in front of a backward pass has a number among the forward passes too.
// In the log: f forward, q prepare_backward, b backward.
class FakeMachine : public FakeMachineFor<AttentionWork> {
 public:
  Passes forwards, backwards;
  double saved_MiB = kSavedMiB;

  void prepare() override {
    saved_ = Saved::kNothing;
    FakeMachineFor::prepare();
  }
  void forward() override {
    enqueue("f", forwards);
    saved_ = Saved::kPending;
  }
  void prepare_backward() override { enqueue("q", kPrepareMs, prepare_peak_MiB); }
  void backward() override {
    enqueue("b", backwards);
    saved_ = Saved::kNothing;
  }
  std::size_t saved_bytes() override {
    return saved_ == Saved::kThere ? static_cast<std::size_t>(saved_MiB * kMiB) : 0;
  }
  void synchronize() override {
    FakeMachineFor::synchronize();
    if (saved_ == Saved::kPending) saved_ = Saved::kThere;
  }

  AttentionMeasurement measured(int warmups, int passes) {
    return measure_attention(*this, *this, warmups, passes);
  }

 private:
  enum class Saved { kNothing, kPending, kThere } saved_ = Saved::kNothing;
};

// A number of the forward and of the backward passes: "forward_" + what, and "backward_" + what.
Verdict expect_both(const std::string& what, double forward, double want_forward, double backward,
                    double want_backward, double tolerance = 1e-9) {
  return first_failure({expect_close("forward_" + what, forward, want_forward, tolerance),
                        expect_close("backward_" + what, backward, want_backward, tolerance)});
}

// ---- which passes there are ---------------------------------------------------------------------

Verdict counts(int warmups, int passes) {
  FakeMachine machine;
  const auto result = machine.measured(warmups, passes);
  if (result.status != AttentionStatus::kOk || !result.message.empty())
    return {false, "status is " + to_string(result.status) + ", message '" + result.message +
                       "', and no memory ran out."};
  const std::string of_each =
      std::to_string(warmups) + " warm-ups and " + std::to_string(passes) + " passes ";
  const int each = warmups + passes;
  if (machine.backwards.count != each)
    return {false, "work.backward() was called " + std::to_string(machine.backwards.count) +
                       " times; " + of_each + "are " + std::to_string(each) + "."};
  return expect(machine.forwards.count == 2 * each,
                "work.forward() was called " + std::to_string(machine.forwards.count) + " times; " +
                    of_each + "are " + std::to_string(each) +
                    " alone, and as many in front of a backward pass.");
}

Verdict counts_passes(std::uint64_t seed) {
  return counts(6 + static_cast<int>(seed % 5), 4 + static_cast<int>(seed % 7));
}

Verdict each_backward_has_a_forward(std::uint64_t) {
  FakeMachine machine;
  (void)machine.measured(1, 3);
  const std::string calls = machine.calls("fb");
  if (calls.find("bb") != std::string::npos)
    return {false,
            "work.backward() was called twice after one work.forward(): the first one may have "
            "used up what was saved. Each needs a forward pass of its own."};
  return expect(calls == "fffffbfbfbfb",
                "The order of the passes has to be: all forward passes alone, then forward, "
                "backward, forward, backward, ...; it was (f forward, b backward) " +
                    calls + " for 1 warm-up and 3 passes.");
}

// prepare() with a peak of 80 MiB and 1000 ms in front of passes of 1 ms: neither counts.
Verdict leaves_out(const std::string& prepare, const std::string& direction, double peak_MiB,
                   double ms) {
  if (peak_MiB == 80)
    return {false, direction + "_peak_MiB is that of work." + prepare +
                       "(): the peak has to be reset right before each timed pass, when what came "
                       "before is done."};
  return expect_close(
      direction + "_ms_mean, of passes of 1 ms with 1000 ms of " + prepare + "() before each,", ms,
      1);
}

Verdict prepares_each_forward(std::uint64_t) {
  FakeMachine machine;
  machine.prepare_peak_MiB = 80;
  const auto result = machine.measured(2, 3);
  const std::string calls = machine.calls("pf");
  if (const auto forwards = std::count(calls.begin(), calls.end(), 'f'); forwards != 10)
    return {false, "work.forward() was called " + std::to_string(forwards) +
                       " times; 2 warm-ups and 3 passes are 5 alone, and as many in front of a "
                       "backward pass."};
  if (calls != "pfpfpfpfpfpfpfpfpfpf")
    return {false,
            "work.prepare() has to come before each forward pass, those in front of a backward "
            "pass too."};
  return leaves_out("prepare", "forward", result.forward_peak_MiB, result.forward_ms_mean);
}

Verdict prepares_each_backward(std::uint64_t) {
  FakeMachine machine;
  machine.prepare_peak_MiB = 80;
  const auto result = machine.measured(2, 3);
  if (machine.calls("fqb") !=
      "fffff"
      "fqbfqbfqbfqbfqb")
    return {false,
            "work.prepare_backward() has to come between a forward pass and its backward pass, in "
            "warm-ups too, and nowhere else."};
  return leaves_out("prepare_backward", "backward", result.backward_peak_MiB,
                    result.backward_ms_mean);
}

// ---- times --------------------------------------------------------------------------------------

Verdict waits_for_asynchronous_work(std::uint64_t seed) {
  FakeMachine machine;
  const std::vector<double> times = durations(seed, 12);
  machine.forwards.ms = [&](int pass) { return times[pass % 6]; };
  machine.backwards.ms = [&](int pass) { return times[6 + pass]; };
  const auto result = machine.measured(0, 6);
  return expect_both("ms_mean, of passes that only enqueue their work,", result.forward_ms_mean,
                     mean({times.begin(), times.begin() + 6}), result.backward_ms_mean,
                     mean({times.begin() + 6, times.end()}));
}

Verdict warmups_do_not_count(std::uint64_t seed) {
  FakeMachine machine;
  const std::vector<double> times = durations(seed, 8);
  machine.forwards.ms =
      machine.backwards.ms = [&](int pass) { return pass % 8 < 3 ? 500.0 : times[pass % 8]; };
  const auto result = machine.measured(3, 5);
  const double want = mean({times.begin() + 3, times.end()});
  return expect_both("ms_mean, after 3 slow warm-up passes,", result.forward_ms_mean, want,
                     result.backward_ms_mean, want);
}

Verdict forward_is_not_in_the_backward_time(std::uint64_t seed) {
  FakeMachine machine;
  const std::vector<double> times = durations(seed, 5);
  machine.forwards.ms = [](int pass) { return pass < 6 ? 1.0 : kUncountedMs; };
  machine.backwards.ms = [&](int pass) { return pass < 1 ? 1.0 : times[pass - 1]; };
  const auto result = machine.measured(1, 5);
  return first_failure(
      {expect_close("backward_ms_mean, where the forward passes in front take 500 ms each,",
                    result.backward_ms_mean, mean(times)),
       expect_close(
           "forward_ms_mean (the forward passes in front of the backward ones do not count)",
           result.forward_ms_mean, 1)});
}

Verdict sample_deviation(std::uint64_t seed) {
  FakeMachine machine;
  const std::vector<double> times = durations(seed, 14);
  machine.forwards.ms = [&](int pass) { return pass < 7 ? times[pass] : kUncountedMs; };
  machine.backwards.ms = [&](int pass) { return times[7 + pass]; };
  const auto result = machine.measured(0, 7);
  return expect_both("ms_std (the sample deviation, divided by passes - 1)", result.forward_ms_std,
                     deviation({times.begin(), times.begin() + 7}), result.backward_ms_std,
                     deviation({times.begin() + 7, times.end()}));
}

Verdict single_pass(std::uint64_t) {
  const auto result = FakeMachine().measured(1, 1);
  return first_failure(
      {expect_exactly("forward_ms_mean of one pass of 1 ms", result.forward_ms_mean, 1),
       expect_exactly("forward_ms_std of a single pass", result.forward_ms_std, 0),
       expect_exactly("backward_ms_std of a single pass", result.backward_ms_std, 0)});
}

Verdict small_spread(std::uint64_t seed) {
  FakeMachine machine;
  const std::vector<double> times = long_durations(seed, 20);
  machine.forwards.ms = [&](int pass) { return pass < 20 ? times[pass] : kUncountedMs; };
  machine.backwards.ms = [&](int pass) { return times[pass]; };
  const auto result = machine.measured(0, 20);
  return expect_both("ms_std of passes of 1000 s that differ by a microsecond",
                     result.forward_ms_std, deviation(times), result.backward_ms_std,
                     deviation(times), 1e-3);
}

// ---- memory -------------------------------------------------------------------------------------

Verdict forward_peak(std::uint64_t seed) {
  FakeMachine machine;
  const double most = drawn_MiB(seed);
  machine.forwards.peak_MiB = [most](int pass) {
    return pass < 2 ? 6400 : pass == 3 ? most : pass < 6 ? 10 : 8000;
  };
  machine.backwards.peak_MiB = [](int) { return 9600; };
  const auto result = machine.measured(2, 4);
  return expect_exactly(
      "forward_peak_MiB", result.forward_peak_MiB, most,
      ", the most in any timed forward pass (the others had 10, the warm-ups 6400, the forward "
      "passes in front of the backward ones 8000, the backward passes 9600).");
}

Verdict backward_peak(std::uint64_t seed) {
  FakeMachine machine;
  const double most = drawn_MiB(seed);
  machine.backwards.peak_MiB = [most](int pass) { return pass < 2 ? 6400 : pass == 3 ? most : 10; };
  const auto result = machine.measured(2, 4);
  return expect_exactly(
      "backward_peak_MiB", result.backward_peak_MiB, most,
      ", the most in any timed backward pass (the others had 10, the warm-ups 6400).");
}

Verdict forward_is_not_in_the_backward_peak(std::uint64_t seed) {
  FakeMachine machine;
  const double peak = drawn_MiB(seed);
  machine.forwards.peak_MiB = [](int) { return 9000; };
  machine.backwards.peak_MiB = [peak](int) { return peak; };
  const auto result = machine.measured(1, 3);
  return expect_exactly("backward_peak_MiB", result.backward_peak_MiB, peak,
                        ": the forward passes had 9000, and are no part of it. Reset the peak when "
                        "they are done, and read it when the backward pass is.");
}

Verdict saved_activations(std::uint64_t seed) {
  FakeMachine machine;
  machine.saved_MiB = drawn_MiB(seed);
  const auto result = machine.measured(1, 2);
  return expect_exactly("saved_activations_MiB", result.saved_activations_MiB, machine.saved_MiB,
                        ". Ask when a forward pass is done, and before a prepare() or backward() "
                        "drops what it saved.");
}

// ---- running out of memory ----------------------------------------------------------------------

constexpr AttentionStatus kForward = AttentionStatus::kOutOfMemory,
                          kBackward = AttentionStatus::kOutOfMemoryBackward;

// Runs 2 warm-ups and 3 passes on a machine on which every figure is known, and which `limit` lets
// run out of memory somewhere: forward passes 0 to 4 are alone, 5 to 9 in front of a backward pass.
// `where` completes a sentence: "when OutOfMemory comes from work.forward()".
Verdict runs_out(AttentionStatus want, const std::string& where,
                 const std::function<void(FakeMachine&)>& limit) {
  FakeMachine machine;
  limit(machine);
  machine.forwards.ms = machine.backwards.ms = [](int) { return 2.0; };
  machine.forwards.peak_MiB = machine.backwards.peak_MiB = [](int) { return 24; };
  const auto result = machine.measured(2, 3);
  const std::string when = " when OutOfMemory comes " + where;
  if (result.status != want)
    return {false, "status is " + to_string(result.status) + when + "; it must be " +
                       to_string(want) + "."};
  if (result.message.find(kNoMemory) == std::string::npos)
    return {false, "message is '" + result.message + "'" + when + "; it must hold what it said, '" +
                       kNoMemory + "'."};
  if (result.backward_ms_mean != 0 || result.backward_ms_std != 0 || result.backward_peak_MiB != 0)
    return {false, "The numbers of the backward passes are " + number(result.backward_ms_mean) +
                       ", " + number(result.backward_ms_std) + " and " +
                       number(result.backward_peak_MiB) + when + "; they must be 0."};
  const bool stand = want == kBackward;
  const double ms = stand ? 2 : 0, peak = stand ? 24 : 0, saved = stand ? kSavedMiB : 0;
  return expect(
      result.forward_ms_mean == ms && result.forward_ms_std == 0 &&
          result.forward_peak_MiB == peak && result.saved_activations_MiB == saved,
      "The numbers of the forward passes (mean, deviation, peak, saved activations) are " +
          number(result.forward_ms_mean) + ", " + number(result.forward_ms_std) + ", " +
          number(result.forward_peak_MiB) + " and " + number(result.saved_activations_MiB) + when +
          "; they must be " +
          (stand ? number(ms) + ", 0, " + number(peak) + " and " + number(saved) +
                       ": they were measured before."
                 : "0."));
}

auto in_forward(int pass) {
  return [pass](FakeMachine& machine) { machine.forwards.run_out_in(pass); };
}
auto in_backward(int pass) {
  return [pass](FakeMachine& machine) { machine.backwards.run_out_in(pass); };
}

auto preparing(int failing_prepare) {
  return [failing_prepare](FakeMachine& machine) {
    machine.on_prepare = [failing_prepare, count = 0]() mutable {
      if (count++ == failing_prepare) throw OutOfMemory(kNoMemory);
    };
  };
}

// The first synchronize() after so many passes of both directions throws, or the second one.
auto waiting_after(int passes, int which = 1) {
  return [=](FakeMachine& machine) {
    machine.on_synchronize = [&machine, passes, left = which]() mutable {
      if (machine.forwards.count + machine.backwards.count == passes && --left == 0)
        throw OutOfMemory(kNoMemory);
    };
  };
}

Verdict out_of_memory_forward(std::uint64_t) {
  return first_failure(
      {runs_out(kForward, "from work.forward() in a warm-up pass", in_forward(0)),
       runs_out(kForward, "from work.forward() in a timed pass", in_forward(4)),
       runs_out(kForward, "from work.prepare() before a timed forward pass", preparing(3))});
}

Verdict out_of_memory_backward(std::uint64_t) {
  return first_failure(
      {runs_out(kBackward, "from work.backward() in a warm-up pass", in_backward(0)),
       runs_out(kBackward, "from work.backward() in a timed pass", in_backward(4))});
}

Verdict out_of_memory_before_a_backward_pass(std::uint64_t) {
  return first_failure(
      {runs_out(kBackward, "from work.forward() in front of a backward pass", in_forward(5)),
       runs_out(kBackward, "from work.prepare() in front of the first backward pass", preparing(5)),
       runs_out(kBackward, "from work.prepare() in front of a backward pass", preparing(8))});
}

Verdict out_of_memory_when_waiting(std::uint64_t) {
  return first_failure(
      {runs_out(kForward, "from clock.synchronize() after the last of the forward passes",
                waiting_after(5)),
       runs_out(kForward, "from clock.synchronize() before a reading of the clock",
                waiting_after(3, 2)),
       runs_out(kBackward, "from clock.synchronize() after the last of the backward passes",
                waiting_after(15))});
}

// ---- other errors -------------------------------------------------------------------------------

Verdict other_errors_pass(std::uint64_t) {
  FakeMachine forward, backward, unsupported;
  return first_failure({
      reaches_the_caller<Unsupported>(unsupported.forwards,
                                      [&] { (void)unsupported.measured(1, 2); }),
      reaches_the_caller<std::runtime_error>(forward.forwards,
                                             [&] { (void)forward.measured(1, 2); }),
      reaches_the_caller<CudaError>(backward.backwards, [&] { (void)backward.measured(1, 2); }),
  });
}

// ---- a list of configurations -------------------------------------------------------------------

struct Part3 {
  using Configuration = AttentionConfiguration;
  using Row = AttentionRow;
  using Measurement = AttentionMeasurement;
  static std::string status(const Row& row) { return to_string(row.measurement.status); }
  static std::string message(const Row& row) { return row.measurement.message; }
  static std::vector<double> numbers(const Row& row) {
    const Measurement& m = row.measurement;
    return {m.forward_ms_mean, m.forward_ms_std,    m.forward_peak_MiB,     m.backward_ms_mean,
            m.backward_ms_std, m.backward_peak_MiB, m.saved_activations_MiB};
  }
};

// One whose run() returns a measurement with this status, and with the numbers that go with it.
Planned<Part3> measured(const std::string& name, AttentionStatus status = AttentionStatus::kOk) {
  AttentionMeasurement m{.status = status};
  if (status != AttentionStatus::kOk) m.message = kNoMemory;
  if (status != kForward)
    m.forward_ms_mean = 2, m.forward_ms_std = 0.25, m.forward_peak_MiB = 24,
    m.saved_activations_MiB = kSavedMiB;
  if (status == AttentionStatus::kOk)
    m.backward_ms_mean = 5, m.backward_ms_std = 0.5, m.backward_peak_MiB = 48;
  return {.name = name,
          .how = "returned a measurement with the status " + to_string(status),
          .run = [m] { return m; },
          .status = to_string(status),
          .message = m.message,
          .numbers = Part3::numbers({.name = "", .measurement = m})};
}

Verdict keeps_what_was_measured(std::uint64_t) {
  return judge_rows<Part3>({measured("all fits"), measured("too long", kForward),
                            measured("too long for a backward pass", kBackward)});
}

}  // namespace

TaskUnderTest measure_attention_task() {
  const auto lists = [](std::vector<std::string> names, bool all) {
    return [=](auto) {
      std::vector<std::pair<Index, std::string>> wanted, listed;
      for (const Index length : {256, 1024, 4096, 8192, 16384})
        for (const std::string& name : names) wanted.emplace_back(length, name);
      for (const AttentionRun& run : list_of_attention_runs())
        listed.emplace_back(run.seq_len, run.implementation);
      return lists_each_once("list_of_attention_runs()", listed, wanted, all, [](const auto& run) {
        return "seq_len " + std::to_string(run.first) + ", " + run.second;
      });
    };
  };
  const auto later = [](auto of) {
    return begin_anew(of, {warmups_do_not_count, sample_deviation, forward_peak, backward_peak,
                           out_of_memory_forward, out_of_memory_backward});
  };
  TaskUnderTest task{
      .id = "part3.measure_attention",
      .cases = {
          {"counts warm-ups and passes", "which passes count", counts_passes},
          {"no warm-ups", "which passes count", [](auto) { return counts(0, 3); }},
          {"each backward pass has a forward pass of its own", "which passes count",
           each_backward_has_a_forward},
          {"prepares each forward pass and does not measure that", "which passes count",
           prepares_each_forward},
          {"prepares each backward pass and does not measure that", "which passes count",
           prepares_each_backward},
          {"synchronises before each reading of the clock", "waiting", synchronises<FakeMachine>},
          {"waits for asynchronous work", "waiting", waits_for_asynchronous_work},
          {"warm-up passes do not count", "which passes count", warmups_do_not_count},
          {"the forward pass is not in the backward time", "which passes count",
           forward_is_not_in_the_backward_time},
          {"a later measurement begins anew", "which passes count", later},
          {"standard deviation", "statistics", sample_deviation},
          {"a single pass has no deviation", "statistics", single_pass},
          {"a small spread of large times", "statistics", small_spread},
          {"peak memory of the timed forward passes", "peak memory", forward_peak},
          {"peak memory of the timed backward passes", "peak memory", backward_peak},
          {"the forward pass is not in the backward peak", "peak memory",
           forward_is_not_in_the_backward_peak},
          {"saved activations", "peak memory", saved_activations},
          {"out of memory in a forward pass", "out of memory", out_of_memory_forward},
          {"out of memory in a backward pass", "out of memory", out_of_memory_backward},
          {"out of memory in front of a backward pass", "out of memory",
           out_of_memory_before_a_backward_pass},
          {"out of memory while waiting", "out of memory", out_of_memory_when_waiting},
          {"other errors reach the caller", "out of memory", other_errors_pass},
          {"a row keeps what was measured before memory ran out", "a list of configurations",
           keeps_what_was_measured},
      }};
  add_cases_of_a_list(task, {measured("standard"), measured("flash"), measured("flash, causal")},
                      failures_between(measured("a good one")));
  const char* const runs = "the benchmark's runs";
  task.add("your forward pass at each length", runs, lists({"flash"}, false));
  task.add("standard attention at each length", runs, lists({"standard"}, false));
  const auto no_other = lists({"standard", "flash"}, true);
  task.add("no run that was not asked for", runs, [=](auto of) {
    return first_failure({no_other(of), no_other(of)});
  });
  return task;
}

}  // namespace flash::harness
