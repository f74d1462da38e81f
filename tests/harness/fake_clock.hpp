// What the cases of the tasks that measure share: a device that is made up, so that every machine
// can grade them, and verdicts on numbers.
//
// The device is behind the host: what is enqueued only adds to what is pending, and time passes
// when somebody waits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/error.hpp"
#include "common/inputs.hpp"
#include "harness/graded_case.hpp"

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

// The base of a fake machine, whose work calls enqueue() and adds a letter of its own to the log.
class FakeClock : public Clock {
 public:
  std::function<void()> on_synchronize = [] {};  // may throw
  std::string log;                               // all calls: s synchronize, n now_ms

  void synchronize() override {
    log += "s";
    time_ms_ += pending_ms_;
    pending_ms_ = 0;
    on_synchronize();
  }
  double now_ms() override {
    log += "n";
    return time_ms_;
  }

  // The calls that are named, in their order.
  std::string calls(const std::string& named) const {
    std::string found;
    for (const char call : log)
      if (named.find(call) != std::string::npos) found += call;
    return found;
  }

 protected:
  void enqueue(double ms) { pending_ms_ += ms; }

 private:
  double time_ms_ = 0;
  double pending_ms_ = 0;
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

// A synchronize() before each reading of the clock, and since then none of the calls in `spoils`.
inline Verdict synchronises_before_reading(const std::string& log, const std::string& spoils) {
  int readings = 0;
  bool waited = false;
  for (const char call : log) {
    if (call == 'n' && (++readings, !waited))
      return {
          false,
          "The clock was read without a clock.synchronize() right before it (reading number " +
              std::to_string(readings) +
              "): whatever is still in the queue is then not in the time, or is in the wrong one."};
    if (call == 's') waited = true;
    if (spoils.find(call) != std::string::npos) waited = false;
  }
  return expect(readings > 0, "The clock was never read.");
}

// Of the readings, the second of each pair follows the first, the pass and a wait, and no reset of
// the peak, which takes time and forgets what the pass had.
inline Verdict nothing_between_the_readings(const std::string& log) {
  int readings = 0;
  for (const char call : log) {
    readings += call == 'n';
    if (call == 'z' && readings % 2 == 1)
      return {false, "The peak is reset between the two readings of the clock: reset it before the "
                     "first, when all earlier work is done."};
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
  } catch (const Bug& error) {
    return expect(std::string(error.what()) == "a bug",
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

}  // namespace flash::harness
