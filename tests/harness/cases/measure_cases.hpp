// What the cases of the tasks that measure share, those of parts 1 and 3: a device that is made up,
// so that every machine can grade them, verdicts on numbers, and the cases of measure_all().
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/inputs.hpp"
#include "harness/cases/graded_case.hpp"

namespace flash::harness {

inline constexpr double kMiB = 1024.0 * 1024.0;
inline constexpr double kPrepareMs = 1000;  // far more than any pass: if it is counted, it shows
inline constexpr const char* kNoMemory = "no room for 1 GiB";

// Passes of one kind, by their number: counted from 0, warm-up passes too.
struct Passes {
  std::function<double(int)> ms = [](int) { return 1.0; };
  std::function<double(int)> peak_MiB = [](int) { return 0.0; };
  std::function<void(int)> on_run = [](int) {};  // may throw
  int count = 0;

  // Number `pass` throws OutOfMemory.
  void run_out_in(int failing) {
    on_run = [failing](int pass) {
      if (pass == failing) throw OutOfMemory(kNoMemory);
    };
  }
};

// The base of a fake machine, a clock and the work of a part. It is behind the host: what is
// enqueued only adds to what is pending, and times and peaks come true when somebody waits.
template <class WorkOfPart>
class FakeMachineFor : public WorkOfPart, public Clock {
 public:
  std::function<void()> on_synchronize = [] {}, on_prepare = [] {};  // may throw
  double prepare_peak_MiB = 0;
  // All calls: s synchronize, n now_ms, p prepare, z reset_peak_memory, and those of the part.
  std::string log;

  void synchronize() override {
    log += "s";
    time_ms_ += std::exchange(pending_ms_, 0);
    peak_MiB_ = std::max(peak_MiB_, std::exchange(pending_peak_MiB_, 0));
    on_synchronize();
  }
  double now_ms() override {
    log += "n";
    return time_ms_;
  }
  void prepare() override {
    enqueue("p", kPrepareMs, prepare_peak_MiB);
    on_prepare();
  }
  void reset_peak_memory() override {
    log += "z";
    peak_MiB_ = 0;
  }
  std::size_t peak_memory_bytes() override { return static_cast<std::size_t>(peak_MiB_ * kMiB); }

  // The calls that are named, in their order.
  std::string calls(const std::string& named) const {
    std::string found;
    for (const char call : log)
      if (named.find(call) != std::string::npos) found += call;
    return found;
  }

 protected:
  void enqueue(const char* call, double ms, double peak_MiB) {
    log += call;
    pending_ms_ += ms;
    pending_peak_MiB_ = std::max(pending_peak_MiB_, peak_MiB);
  }
  void enqueue(const char* call, Passes& passes) {
    const int pass = passes.count++;
    enqueue(call, passes.ms(pass), passes.peak_MiB(pass));
    passes.on_run(pass);
  }

 private:
  double time_ms_ = 0, pending_ms_ = 0;
  double peak_MiB_ = 0, pending_peak_MiB_ = 0;
};

inline Verdict expect(bool condition, const std::string& otherwise) {
  return {condition, condition ? "" : otherwise};
}

inline std::string number(double value) { return std::to_string(value); }

inline Verdict expect_close(const std::string& what, double got, double want,
                            double relative = 1e-9) {
  const double error = std::fabs(got - want);
  return expect(error <= relative * std::fabs(want) || error == 0,
                what + " is " + number(got) + "; it must be " + number(want) + ".");
}

inline Verdict expect_exactly(const std::string& what, double got, double want,
                              const std::string& why = ".") {
  return expect(got == want, what + " is " + number(got) + "; it must be " + number(want) + why);
}

// A synchronize() before each reading of the clock, and since then no call but a reset of the peak.
// That takes time and forgets what the pass had, so it is not between the two readings of a pass.
template <class Machine>
Verdict synchronises(std::uint64_t) {
  Machine machine;
  (void)machine.measured(2, 5);
  int readings = 0;
  bool waited = false;
  for (const char call : machine.log) {
    if (call == 'n' && (++readings, !waited))
      return {
          false,
          "The clock was read without a clock.synchronize() right before it (reading number " +
              std::to_string(readings) +
              "): whatever is still in the queue is then not in the time, or is in the wrong one."};
    if (call == 'z' && readings % 2 == 1)
      return {false,
              "The peak is reset between the two readings of the clock: reset it before the "
              "first, when all earlier work is done."};
    if (call != 'z') waited = call == 's';
  }
  return expect(readings > 0, "The clock was never read.");
}

// Of checks that measure: what was right at first, and is not in a later measurement of the same
// program.
inline Verdict begin_anew(std::uint64_t seed,
                          const std::vector<std::function<Verdict(std::uint64_t)>>& checks) {
  std::vector<bool> were_right;
  for (const auto& check : checks) were_right.push_back(check(seed).pass);
  for (std::size_t n = 0; n < checks.size(); ++n) {
    if (!were_right[n]) continue;  // other cases say so
    Verdict again = checks[n](seed + 1);
    if (again.pass) continue;
    again.text = "In a later measurement of the same program: " + again.text;
    return again;
  }
  return {true, ""};
}

// `measure` runs `passes` that throw a Bug, which is not OutOfMemory.
template <class Bug, class Measure>
Verdict reaches_the_caller(Passes& passes, Measure measure) {
  passes.on_run = [](int) { throw Bug("a bug"); };
  try {
    measure();
  } catch (const NotYetImplemented&) {
    throw;
  } catch (const KernelError&) {  // the end of its process
    throw;
  } catch (const std::exception& error) {
    return expect(
        std::string(error.what()) == "a bug" && dynamic_cast<const OutOfMemory*>(&error) == nullptr,
        std::string("The exception came out changed: ") + error.what());
  }
  return {false,
          "An exception other than OutOfMemory is a bug in the work; it must reach the caller, not "
          "vanish."};
}

// Random durations, the same for the same seed.
inline std::vector<double> durations(std::uint64_t seed, int count) {
  Random random(seed);
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(1 + random.uniform());
  return values;
}

// A peak of memory in MiB: no constant is right for two seeds, and 32 bits hold no such number of
// bytes.
inline double drawn_MiB(std::uint64_t seed) {
  return 5000 + std::floor(Random(seed).uniform() * 128) / 4;
}

// Of passes of 1000 s that differ by a microsecond. The clock itself rounds to 8e-9 ms at times
// near 4e7 ms; their deviation is about 3e-4 ms.
inline std::vector<double> long_durations(std::uint64_t seed, int count) {
  std::vector<double> values = durations(seed, count);
  for (double& ms : values) ms = 1e6 + 1e-3 * ms;
  return values;
}

inline double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// The sample deviation.
inline double deviation(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += (value - mean(values)) * (value - mean(values));
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

// ---- A list of configurations -------------------------------------------------------------------

// A part is a struct with its types Configuration, Row and Measurement, and with static functions
// that look into a row: status(row), message(row), and numbers(row), a vector of all its numbers.

// A configuration, and how its row has to be.
template <class Part>
struct Planned {
  std::string name;
  std::string how;  // completes "its run() ..."
  std::function<typename Part::Measurement()> run;
  std::string status = "ok", message = "";
  std::vector<double> numbers = {};  // empty: all are 0
};

inline constexpr const char* kReason = "a made-up reason";

template <class Part, class Exception>
Planned<Part> throwing(const std::string& type, const std::string& status) {
  return {.name = "one that throws " + type,
          .how = "threw " + type,
          .run = []() -> typename Part::Measurement { throw Exception(kReason); },
          .status = status,
          .message = kReason};
}

// One for each kind of exception, and before, between and behind them `good`.
template <class Part>
std::vector<Planned<Part>> failures_between(const Planned<Part>& good) {
  return {good, throwing<Part, OutOfMemory>("OutOfMemory", "OOM"),
          good, throwing<Part, Unsupported>("Unsupported", "unsupported"),
          good, throwing<Part, CudaError>("CudaError", "error"),
          good, throwing<Part, std::runtime_error>("std::runtime_error", "error"),
          good, throwing<Part, std::logic_error>("std::logic_error", "error"),
          good};
}

// What is asked of a row beside its name.
enum class Ask { kNothing, kStatus, kMessageAndNumbers, kAll };

// What is wrong with a row, as the end of a sentence, or "".
template <class Part>
std::string wrong_in_row(const typename Part::Row& row, const Planned<Part>& planned, Ask ask) {
  if ((ask == Ask::kStatus || ask == Ask::kAll) && Part::status(row) != planned.status)
    return "has the status '" + Part::status(row) + "'; it must be '" + planned.status + "'.";
  if (ask != Ask::kMessageAndNumbers && ask != Ask::kAll) return "";
  const std::string message = Part::message(row);
  if (planned.message.empty() ? !message.empty()
                              : message.find(planned.message) == std::string::npos)
    return "has the message '" + message + "'; it must " +
           (planned.message.empty() ? "be empty." : "hold '" + planned.message + "'.");
  const std::vector<double> numbers = Part::numbers(row);
  std::vector<double> want = planned.numbers;
  want.resize(numbers.size());
  if (numbers == want) return "";
  return planned.numbers.empty() ? "has numbers, and nothing was measured: each must be 0."
                                 : "does not have the numbers of that measurement.";
}

// Runs the list: each configuration once and in its turn, and one row for each, with its name.
template <class Part>
Verdict judge_rows(const std::vector<Planned<Part>>& list, Ask ask = Ask::kAll) {
  std::vector<typename Part::Configuration> configurations;
  std::vector<std::size_t> ran;
  for (std::size_t i = 0; i < list.size(); ++i)
    configurations.push_back({list[i].name, [&, i] {
                                ran.push_back(i);
                                return list[i].run();
                              }});
  std::vector<typename Part::Row> rows;
  try {
    rows = measure_all(configurations);
  } catch (const NotYetImplemented&) {
    throw;
  } catch (const KernelError&) {  // the end of its process
    throw;
  } catch (const std::exception& error) {
    return {false, std::string("measure_all() threw '") + error.what() + "' when " +
                       std::to_string(ran.size()) + " of " + std::to_string(list.size()) +
                       " configurations had run: what run() throws must become a row, and the next "
                       "configuration must run."};
  }
  std::vector<std::size_t> each(list.size());
  for (std::size_t i = 0; i < each.size(); ++i) each[i] = i;
  if (ran != each || rows.size() != list.size())
    return {false, "Of " + std::to_string(list.size()) + " configurations, " +
                       std::to_string(ran.size()) + " were run, and " +
                       std::to_string(rows.size()) +
                       " rows came back: each has to run once, in the order of the list, and to "
                       "give one row."};
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string row = "Row " + std::to_string(i) + ", whose run() " + list[i].how + ", ";
    if (rows[i].name != list[i].name)
      return {false, row + "has the name '" + rows[i].name + "'; it must be '" + list[i].name +
                         "', that of its configuration."};
    if (const std::string wrong = wrong_in_row(rows[i], list[i], ask); !wrong.empty())
      return {false, row + wrong};
  }
  return {true, ""};
}

// The cases of measure_all(): configurations that all succeed, and some that fail.
template <class Part>
void add_cases_of_a_list(TaskUnderTest& task, const std::vector<Planned<Part>>& good,
                         const std::vector<Planned<Part>>& failing) {
  const char* const requirement = "a list of configurations";
  task.add("a row for each configuration", requirement, [good](auto) {
    return first_failure({judge_rows(good), judge_rows<Part>({}), judge_rows(good)});
  });
  for (const auto& [name, ask] :
       {std::pair{"goes on after a failure", Ask::kNothing},
        {"each failure has its status", Ask::kStatus},
        {"a failure has a message and no numbers", Ask::kMessageAndNumbers}})
    task.add(name, requirement, [failing, ask = ask](auto) { return judge_rows(failing, ask); });
}

// ---- The list of a benchmark's runs -------------------------------------------------------------

// Whether the list has each of the runs that are wanted once, and, if these are all, no other.
// `what` returned it; `name` puts a run into words.
template <class Run, class Name>
Verdict lists_each_once(const std::string& what, const std::vector<Run>& listed,
                        const std::vector<Run>& wanted, bool all, Name name) {
  for (const Run& run : wanted) {
    const auto count = std::count(listed.begin(), listed.end(), run);
    if (count != 1)
      return {false, what + " has the run '" + name(run) + "' " +
                         (count == 0 ? "not at all" : std::to_string(count) + " times") +
                         "; it has to be there once."};
  }
  for (const Run& run : listed)
    if (all && std::find(wanted.begin(), wanted.end(), run) == wanted.end())
      return {false,
              what + " has the run '" + name(run) + "', which the contract does not ask for."};
  return {true, ""};
}

}  // namespace flash::harness
