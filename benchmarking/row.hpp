// One row of a benchmark: the result is checked, then the passes are timed, and whatever goes wrong becomes a status.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "benchmarking/machine.hpp"
#include "part1_softmax_matmul/measure.hpp"

namespace flash {

struct RowPlan {
  std::function<void()> pass;          // the call that is timed; may return before its work is done
  std::function<void()> before_check;  // spoils the output, so that what is not written is seen
  std::function<std::string()> check;  // of the output of one pass: empty when it is right, else what is wrong, in one line
  std::function<void(int)> progress;   // called with the number of each pass that `measure` is about to run, from 1
  int warmups = 0;
  int passes = 1;
  std::size_t baseline_bytes = 0;            // memory in use before the inputs: it does not count in the peak and the limit
  std::optional<std::size_t> memory_limit;   // for everything beyond the baseline
};

struct Outcome {
  std::string status;   // the CSV's: "ok", "OOM", "unsupported" or "error"
  std::string message;  // in one line; empty when ok
  Measurement measurement;
  bool machine_lost = false;  // the GPU answers every further call with the same error
};

// Runs the plan. Throws NotYetImplemented, and Interrupted between two passes; every other exception becomes a status.
Outcome run_row(Machine& machine, const RowPlan& plan);

// The mean time, in milliseconds, that `measure` finds for a pass that does nothing: what one reading of the clock costs.
// Throws NotYetImplemented.
double clock_floor_ms(Machine& machine, int warmups, int passes);

}  // namespace flash
