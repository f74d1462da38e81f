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

// BEGIN SOLUTION mean and sample standard deviation of the times (two short functions, or one;
//   mind a single time, and do not subtract two large nearly equal numbers)
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
// END SOLUTION

}  // namespace

Measurement measure(Work& work, Clock& clock, int warmups, int passes) {
  check_at_least("warmups", warmups, 0);
  check_at_least("passes", passes, 1);
  Measurement result;
  // BEGIN SOLUTION the passes: warm up; forget the memory peak so far; then time each pass, with
  //   the clock synchronised before either reading; fill `result`. OutOfMemory, whenever it comes,
  //   becomes a result (about 20 lines)
  // STUB throw NotYetImplemented("part1.measure");
  try {
    for (int pass = 0; pass < warmups; ++pass) {
      work.prepare();
      work.run();
    }
    clock.synchronize();  // an asynchronous failure of a warm-up pass surfaces here, and its memory
                          // is free again
    work.reset_peak_memory();

    std::vector<double> times_ms;
    for (int pass = 0; pass < passes; ++pass) {
      work.prepare();
      clock.synchronize();  // what was enqueued before this pass is not part of it
      const double start = clock.now_ms();
      work.run();
      clock.synchronize();  // run() may have returned before the work was done
      times_ms.push_back(clock.now_ms() - start);
    }
    result.mean_ms = mean_of(times_ms);
    result.std_ms = sample_deviation_of(times_ms, result.mean_ms);
    result.peak_MiB = static_cast<double>(work.peak_memory_bytes()) / kBytesPerMiB;
  } catch (const OutOfMemory& error) {
    result = {};
    result.out_of_memory = true;
    result.message = error.what();
  }
  // END SOLUTION
  return result;
}

std::vector<Row> measure_all(const std::vector<Configuration>& configurations) {
  std::vector<Row> rows;
  // BEGIN SOLUTION a row for each configuration: run it, and turn what it returns or throws into a
  //   status and a message (about 20 lines)
  // STUB throw NotYetImplemented("part1.measure");
  for (const Configuration& configuration : configurations) {
    Row row{.name = configuration.name, .status = "ok"};
    try {
      const Measurement measured = configuration.run();
      if (measured.out_of_memory) throw OutOfMemory(measured.message);
      row.measurement = measured;
    } catch (const OutOfMemory& error) {
      row.status = "OOM";
      row.message = error.what();
    } catch (const Unsupported& error) {
      row.status = "unsupported";
      row.message = error.what();
    } catch (const std::exception& error) {  // the root of the two above, so it comes last
      row.status = "error";
      row.message = error.what();
    }
    rows.push_back(row);
  }
  // END SOLUTION
  return rows;
}

std::vector<BenchmarkRun> list_of_runs() {
  std::vector<BenchmarkRun> runs;
  // BEGIN SOLUTION the runs of the benchmark: for each d2 the unfused function and the three sizes
  //   of blocks (about 3 lines)
  // STUB throw NotYetImplemented("part1.measure");
  for (Index d2 = 64; d2 <= 8192; d2 *= 2)
    for (const int block : {0, 16, 32, 64}) runs.push_back({.d2 = d2, .block = block});
  // END SOLUTION
  return runs;
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(MeasureTask)
