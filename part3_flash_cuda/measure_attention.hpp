// Contract of task 3.B: how to measure attention, forward and backward, what to measure, and how to
// go through a list of things to measure. On a GPU `./lab bench part3` is made of your three
// functions.
//
// Task 1.B measured work that can run alone. A backward pass cannot: it starts from what a forward
// pass saved. So a measurement has two times and three figures of memory, and memory can run out in
// either direction.
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

// What is measured: one attention, the memory in which it runs, and what it keeps from its forward
// pass for its backward pass.
class AttentionWork {
 public:
  virtual ~AttentionWork() = default;

  // Brings back the state that a forward pass starts from: evicts the caches, and frees what
  // earlier passes left, also what forward() saved. Called before each forward(). May be
  // asynchronous. May throw OutOfMemory.
  virtual void prepare() = 0;

  // One forward pass. May return before the work is done. Throws OutOfMemory when memory runs out.
  virtual void forward() = 0;

  // The same for a backward pass: evicts the caches, but keeps what forward() saved. Called between
  // a forward() and its backward().
  virtual void prepare_backward() {}

  // Computes the gradients from what the last forward() saved, and may use that up: call it once
  // for each forward(). May return before the work is done. Throws OutOfMemory when memory runs
  // out.
  virtual void backward() = 0;

  // Bytes of the tensors that the last forward() keeps for backward(), the same for every
  // forward(). The figure is valid when that pass is done (clock.synchronize()), until the next
  // prepare() or backward().
  virtual std::size_t saved_bytes() = 0;

  // Forgets the peak so far. From here on, peak_memory_bytes() counts later passes, and memory that
  // is still in use.
  virtual void reset_peak_memory() = 0;

  // The most memory that was in use at one time since the last reset_peak_memory(), in bytes. Work
  // that is not done yet may still raise it. So call this and the reset, like the clock, only when
  // clock.synchronize() came after all work.
  virtual std::size_t peak_memory_bytes() = 0;
};

enum class AttentionStatus {
  kOk,
  kOutOfMemory,          // the forward passes did not fit
  kOutOfMemoryBackward,  // they did, and the backward passes did not
  // In the rows of measure_all() only:
  kUnsupported,  // the implementation does not take the problem
  kError,        // something is wrong
};

// As in the column `status` of the benchmarks' CSV.
inline std::string to_string(AttentionStatus status) {
  switch (status) {
    case AttentionStatus::kOk: return "ok";
    case AttentionStatus::kOutOfMemory: return "OOM";
    case AttentionStatus::kOutOfMemoryBackward: return "OOM(backward)";
    case AttentionStatus::kUnsupported: return "unsupported";
    case AttentionStatus::kError: return "error";
  }
  return "";
}

// Means and sample standard deviations (divided by passes - 1; 0 for a single pass) of one pass. 1
// MiB = 2^20 bytes. A peak is the most memory in use during any of the timed passes. What was not
// measured is 0: after kOutOfMemoryBackward the numbers of the backward passes, after every other
// failure all.
struct AttentionMeasurement {
  AttentionStatus status = AttentionStatus::kOk;
  std::string message;  // what the exception said; empty when the status is kOk
  double forward_ms_mean = 0;
  double forward_ms_std = 0;
  double forward_peak_MiB = 0;
  double backward_ms_mean = 0;
  double backward_ms_std = 0;
  double backward_peak_MiB = 0;
  double saved_activations_MiB = 0;
};

// Runs the forward passes alone, `warmups` that do not count and then `passes` that do; after them
// as many backward passes, each with a forward pass of its own that is not measured:
//
//   a forward pass     prepare(), FORWARD()
//   a backward pass    prepare(), forward(), prepare_backward(), BACKWARD()
//
// Only the calls in capitals are measured, and only after the warm-up passes. clock.synchronize()
// comes before either reading of the clock, and between the two readings there is nothing but the
// pass and that synchronize(). The peak is reset before the first reading, when all earlier work is
// done, and read after the second; the largest peak of the passes counts. saved_bytes() is read
// when a forward pass is done.
//
// OutOfMemory is a result, whichever call throws it: the function returns. Until the last measured
// forward pass is done, the status is kOutOfMemory. After that it is kOutOfMemoryBackward, also if
// prepare(), forward() or clock.synchronize() throws: the forward passes were measured and fit, so
// their numbers stay. (A synchronize() does not tell whose work failed.) Any other exception passes
// through.
//
// Throws ArgumentError when warmups < 0 or passes < 1.
AttentionMeasurement measure_attention(AttentionWork& work, Clock& clock, int warmups, int passes);

// One line of a benchmark's list: "flash, 4096 queries and keys, causal".
struct AttentionConfiguration {
  std::string name;
  // Makes the tensors, measures, and frees the tensors again, whatever happens. Throws OutOfMemory
  // when there is no room for the tensors, Unsupported when the implementation does not take the
  // problem, and any other exception when something is wrong.
  std::function<AttentionMeasurement()> run;
};

// One line of a benchmark's result.
struct AttentionRow {
  std::string name;  // of the configuration
  AttentionMeasurement measurement;
};

// Runs each configuration once, in their order, and returns a row for each: a failure becomes a row
// like any other, and the next configuration runs. What run() returns is the row's measurement,
// whatever its status. When run() throws, the measurement has the message of the exception and no
// number, and the status kOutOfMemory for OutOfMemory, kUnsupported for Unsupported, and kError for
// any other std::exception.
std::vector<AttentionRow> measure_all(const std::vector<AttentionConfiguration>& configurations);

// One run of this part's benchmark: an implementation, at a number of queries and keys.
struct AttentionRun {
  Index seq_len = 0;
  std::string implementation;  // "standard", which is given, or "flash", your forward pass
};

// What this part's benchmark measures: "standard" and "flash", each at the lengths 256, 1024, 4096,
// 8192 and 16384. (The program measures each run with and without the causal mask.) The order is
// yours; no run may be there twice.
std::vector<AttentionRun> list_of_attention_runs();

struct MeasureAttentionTask {
  static constexpr char kId[] = "part3.measure_attention";
  AttentionMeasurement (*measure_attention)(AttentionWork&, Clock&, int warmups,
                                            int passes) = flash::measure_attention;
  std::vector<AttentionRow> (*measure_all)(const std::vector<AttentionConfiguration>&) =
      flash::measure_all;
  std::vector<AttentionRun> (*list_of_attention_runs)() = flash::list_of_attention_runs;
};

}  // namespace flash
