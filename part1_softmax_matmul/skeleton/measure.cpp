// Task 1.B: how to measure work that may be asynchronous and may run out of memory, how to go on
// with the next, and what this part's benchmark measures.
#include "part1_softmax_matmul/measure.hpp"

#include <cmath>
#include <exception>
#include <vector>

#include "common/checks.hpp"

namespace flash {
namespace {

constexpr double kBytesPerMiB = 1024.0 * 1024.0;

// TODO mean and sample standard deviation of the times (two short functions, or one;
//   mind a single time, and do not subtract two large nearly equal numbers)

}  // namespace

Measurement measure(Work& work, Clock& clock, int warmups, int passes) {
  check_at_least("warmups", warmups, 0);
  check_at_least("passes", passes, 1);
  Measurement result;
  // TODO the passes: warm up; forget the memory peak so far; then time each pass, with
  //   the clock synchronised before either reading; fill `result`. OutOfMemory, whenever it comes,
  //   becomes a result (about 20 lines)
  throw NotYetImplemented("part1.measure");
  return result;
}

std::vector<Row> measure_all(const std::vector<Configuration>& configurations) {
  std::vector<Row> rows;
  // TODO a row for each configuration: run it, and turn what it returns or throws into a
  //   status and a message (about 20 lines)
  throw NotYetImplemented("part1.measure");
  return rows;
}

std::vector<BenchmarkRun> list_of_runs() {
  std::vector<BenchmarkRun> runs;
  // TODO the runs of the benchmark: for each d2 the unfused function and the three sizes
  //   of blocks (about 3 lines)
  throw NotYetImplemented("part1.measure");
  return runs;
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(MeasureTask)
