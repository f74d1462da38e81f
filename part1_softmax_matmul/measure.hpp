// Contract of task 1.B: how to measure, what to measure, and how to go through a list of things to
// measure. `./lab bench part1` is made of your three functions.
//
// A benchmark gives `measure` something to run and a clock to read (common/clock.hpp). Work on a
// GPU is asynchronous: run() only enqueues it and returns, so a clock read at that moment says
// nothing about the work.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/export.hpp"
#include "common/task.hpp"
#include "common/tensor.hpp"

namespace flash {

// What is measured.
class Work {
 public:
  virtual ~Work() = default;

  // Brings back the state that every pass has to start from (an evicted cache, say). Called before
  // each pass, warm-up passes too; its time does not count. May be asynchronous.
  virtual void prepare() {}

  // One pass. May return before the work is done. Throws OutOfMemory when memory runs out.
  virtual void run() = 0;

  // Forgets the peak so far. From here on, peak_memory_bytes() counts later passes, and passes that
  // are not done yet.
  virtual void reset_peak_memory() = 0;

  // The most memory that was in use at one time since the last reset_peak_memory(), in bytes.
  virtual std::size_t peak_memory_bytes() = 0;
};

struct Measurement {
  bool out_of_memory = false;  // then every number below is 0
  std::string message;         // what OutOfMemory said; empty otherwise
  double mean_ms = 0;          // of one pass
  double std_ms = 0;    // sample standard deviation (divided by passes - 1); 0 for a single pass
  double peak_MiB = 0;  // 1 MiB = 2^20 bytes; the most memory in use during the timed passes
};

// Runs `warmups` passes that do not count, then `passes` that do.
//
// work.prepare() comes before each pass. In a timed pass, clock.synchronize() comes before either
// reading of the clock, and between the two readings there is nothing but work.run() and that
// synchronize(). The peak is reset once, after the warm-up passes and a clock.synchronize().
//
// OutOfMemory, from any pass, is a result: out_of_memory is set and the call returns. Any
// other exception passes through. Throws ArgumentError when warmups < 0 or passes < 1.
Measurement measure(Work& work, Clock& clock, int warmups, int passes);

// One line of a benchmark's list: "fused, d2 4096, blocks of 64".
struct Configuration {
  std::string name;
  // Makes the tensors, measures, and frees the tensors again, whatever happens. Throws OutOfMemory
  // when there is no room for the tensors, Unsupported when the implementation does not take the
  // problem, and any other exception when something is wrong.
  std::function<Measurement()> run;
};

// One line of a benchmark's result.
struct Row {
  std::string name;         // of the configuration
  std::string status;       // as in the column `status` of the benchmarks' CSV
  std::string message;      // why it is not ok; empty when it is
  Measurement measurement;  // every number is 0 unless the status is ok
};

// Runs each configuration once, in their order, and returns a row for each: a failure becomes a row
// like any other, and the next configuration runs.
//
//   status        when                                          message
//   ok            run() returned a measurement                  empty
//   OOM           run() returned one with out_of_memory         that of the measurement
//                 run() threw OutOfMemory                       what it says
//   unsupported   run() threw Unsupported                       what it says
//   error         run() threw any other std::exception          what it says
std::vector<Row> measure_all(const std::vector<Configuration>& configurations);

// One run of this part's benchmark: softmax(X) V with d2 keys.
struct BenchmarkRun {
  Index d2 = 0;
  int block = 0;  // block_1 = block_2 of task 1.A's function; 0 stands for the unfused function
};

// What this part's benchmark measures: d2 is 64, 128, 256, ..., 8192 (each twice the one before).
// For each d2 there is a run of the unfused function, and one of task 1.A's with blocks of 16, of
// 32 and of 64. The order is yours; no run may be there twice.
std::vector<BenchmarkRun> list_of_runs();

struct MeasureTask {
  static constexpr char kId[] = "part1.measure";
  Measurement (*measure)(Work&, Clock&, int warmups, int passes) = flash::measure;
  std::vector<Row> (*measure_all)(const std::vector<Configuration>&) = flash::measure_all;
  std::vector<BenchmarkRun> (*list_of_runs)() = flash::list_of_runs;
};

}  // namespace flash
