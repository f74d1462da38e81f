// What the cases of the tasks that measure share: the clock of a device that is made up, so that every machine can grade them,
// and verdicts on numbers.
//
// The device is behind the host: what is enqueued only adds to what is pending, and time passes when somebody waits.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/inputs.hpp"
#include "harness/graded_case.hpp"

namespace flash::harness {

inline constexpr double kMiB = 1024.0 * 1024.0;
inline constexpr double kPrepareMs = 1000;  // far more than any pass: if it is counted, it shows

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

 protected:
  void enqueue(double ms) { pending_ms_ += ms; }

 private:
  double time_ms_ = 0;
  double pending_ms_ = 0;
};

inline Verdict expect(bool condition, const std::string& otherwise) { return {condition, condition ? "" : otherwise}; }

inline std::string number(double value) { return std::to_string(value); }

inline Verdict expect_close(const std::string& what, double got, double want, double relative) {
  const double error = std::fabs(got - want);
  return expect(error <= relative * std::fabs(want) || error == 0,
                what + " is " + number(got) + "; it must be " + number(want) + ".");
}

// Random durations, the same for the same seed.
inline std::vector<double> durations(std::uint64_t seed, int count) {
  Random random(seed);
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(1 + random.uniform());
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
