// Task 3.B: how to measure attention, forward and backward, where work may be asynchronous and
// memory may run out, and how to go on with the next.
#include "part3_flash_cuda/measure_attention.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <vector>

#include "common/checks.hpp"

namespace flash {
namespace {

constexpr double kBytesPerMiB = 1024.0 * 1024.0;

// BEGIN SOLUTION mean and sample standard deviation, as in task 1.B (copy yours), and a function
//   for one timed pass: what comes before and after it is the same in both directions (about 30
//   lines)
double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// Two passes: sum(x^2) - n mean^2 would cancel where the spread is small beside the mean.
double sample_deviation_of(const std::vector<double>& values, double mean) {
  if (values.size() < 2) return 0;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

// The timed passes of one direction.
struct TimedPasses {
  std::vector<double> times_ms;
  std::size_t peak_bytes = 0;
};

template <class Pass>
void time_pass(AttentionWork& work, Clock& clock, TimedPasses& timed, Pass&& pass) {
  clock.synchronize();  // what was enqueued before is neither in the time nor in the peak
  work.reset_peak_memory();
  const double start = clock.now_ms();
  pass();
  clock.synchronize();  // the pass may have returned before the work was done
  timed.times_ms.push_back(clock.now_ms() - start);
  timed.peak_bytes = std::max(timed.peak_bytes, work.peak_memory_bytes());
}
// END SOLUTION

}  // namespace

AttentionMeasurement measure_attention(AttentionWork& work, Clock& clock, int warmups, int passes) {
  check_at_least("warmups", warmups, 0);
  check_at_least("passes", passes, 1);
  AttentionMeasurement result;
  // BEGIN SOLUTION the forward passes, warm-ups first; then the backward passes, each after a
  //   forward pass that is not measured. Write the numbers of a direction to `result` when all its
  //   passes are done: if memory runs out before, they stay 0 (about 35 lines)
  // STUB throw NotYetImplemented("part3.measure_attention");
  result.status = AttentionStatus::kOutOfMemory;  // what it is if memory runs out from here on
  try {
    TimedPasses forward;
    for (int pass = -warmups; pass < passes; ++pass) {  // below 0: warm-up
      work.prepare();
      if (pass < 0)
        work.forward();
      else
        time_pass(work, clock, forward, [&] { work.forward(); });
    }
    result.forward_ms_mean = mean_of(forward.times_ms);
    result.forward_ms_std = sample_deviation_of(forward.times_ms, result.forward_ms_mean);
    result.forward_peak_MiB = static_cast<double>(forward.peak_bytes) / kBytesPerMiB;
    result.saved_activations_MiB =
        static_cast<double>(work.saved_bytes()) / kBytesPerMiB;  // of the last pass, which is done

    result.status = AttentionStatus::kOutOfMemoryBackward;
    TimedPasses backward;
    for (int pass = -warmups; pass < passes; ++pass) {
      work.prepare();
      work.forward();
      work.prepare_backward();
      if (pass < 0)
        work.backward();
      else
        time_pass(work, clock, backward, [&] { work.backward(); });
    }
    result.backward_ms_mean = mean_of(backward.times_ms);
    result.backward_ms_std = sample_deviation_of(backward.times_ms, result.backward_ms_mean);
    result.backward_peak_MiB = static_cast<double>(backward.peak_bytes) / kBytesPerMiB;

    result.status = AttentionStatus::kOk;
  } catch (const OutOfMemory& error) {
    result.message = error.what();
  }
  // END SOLUTION
  return result;
}

std::vector<AttentionRow> measure_all(const std::vector<AttentionConfiguration>& configurations) {
  std::vector<AttentionRow> rows;
  // BEGIN SOLUTION a row for each configuration: what it returns, or the status and the message of
  //   what it throws (about 15 lines)
  // STUB throw NotYetImplemented("part3.measure_attention");
  for (const AttentionConfiguration& configuration : configurations) {
    AttentionRow row{.name = configuration.name, .measurement = {}};
    const auto failed = [&](AttentionStatus status, const std::exception& error) {
      row.measurement = {.status = status, .message = error.what()};
    };
    try {
      row.measurement = configuration.run();
    } catch (const OutOfMemory& error) {
      failed(AttentionStatus::kOutOfMemory, error);
    } catch (const Unsupported& error) {
      failed(AttentionStatus::kUnsupported, error);
    } catch (const std::exception& error) {  // the root of the two above, so it comes last
      failed(AttentionStatus::kError, error);
    }
    rows.push_back(row);
  }
  // END SOLUTION
  return rows;
}

std::vector<AttentionRun> list_of_attention_runs() {
  std::vector<AttentionRun> runs;
  // BEGIN SOLUTION the runs of the benchmark: both implementations at each length (about 3 lines)
  // STUB throw NotYetImplemented("part3.measure_attention");
  for (const Index seq_len : {256, 1024, 4096, 8192, 16384})
    for (const char* const name : {"standard", "flash"}) runs.push_back({seq_len, name});
  // END SOLUTION
  return runs;
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(MeasureAttentionTask)
