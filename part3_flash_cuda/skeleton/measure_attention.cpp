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

// TODO mean and sample standard deviation, as in task 1.B (copy yours), and a function
//   for one timed pass: what comes before and after it is the same in both directions (about 30
//   lines)

}  // namespace

AttentionMeasurement measure_attention(AttentionWork& work, Clock& clock, int warmups, int passes) {
  check_at_least("warmups", warmups, 0);
  check_at_least("passes", passes, 1);
  AttentionMeasurement result;
  // TODO the forward passes, warm-ups first; then the backward passes, each after a
  //   forward pass that is not measured. Write the numbers of a direction to `result` when all its
  //   passes are done: if memory runs out before, they stay 0 (about 35 lines)
  throw NotYetImplemented("part3.measure_attention");
  return result;
}

std::vector<AttentionRow> measure_all(const std::vector<AttentionConfiguration>& configurations) {
  std::vector<AttentionRow> rows;
  // TODO a row for each configuration: what it returns, or the status and the message of
  //   what it throws (about 15 lines)
  throw NotYetImplemented("part3.measure_attention");
  return rows;
}

std::vector<AttentionRun> list_of_attention_runs() {
  std::vector<AttentionRun> runs;
  // TODO the runs of the benchmark: both implementations at each length (about 3 lines)
  throw NotYetImplemented("part3.measure_attention");
  return runs;
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(MeasureAttentionTask)
