// Calls a student's function in another process and takes the time: for the leaderboard, whose
// judge owns the clock, the memory of each call, and the check of each result.
//
//   map     the runner maps the call's memory, which is full of NaN
//   stop    the kernel stops the runner's process (SIGSTOP): it can do nothing until the clock runs
//   write   the judge writes the inputs and evicts them from all caches
//   begin   the judge reads its clock and lets the runner go on
//   keep    the runner answers; on a GPU the judge now copies the outputs to memory of its own
//   end     the judge reads its clock and stops the process again
//   check   the judge looks at the results, which nobody else can change any more
//
// So work cannot be done before the inputs are there, nor after the answer. A call's time holds one
// exchange of messages and two switches between processes: measure these by a call of kNothing with
// the same tensors, in a runner without student code, and subtract them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/judge/remote.hpp"

namespace flash::grading {

struct Layout;

// The memory of timed calls, on the host or on a GPU.
class CallMemory {
 public:
  virtual ~CallMemory() = default;

  // Makes memory of at least `bytes`, full of NaN. Returns a descriptor of it for the runner, or -1
  // if the runner still has this memory from the call before.
  virtual int make(std::size_t bytes) = 0;
  virtual std::size_t bytes() const = 0;
  virtual bool is_on_device() const = 0;
  // While the runner's process is stopped: writes the inputs, and evicts them from all caches.
  // Returns how many ms the judge waited for a GPU on which nothing else should run.
  virtual double write(const Call& call, const Layout& layout) = 0;
  // The end of a call, before the clock is read.
  virtual void keep(const Call& call, const Layout& layout) = 0;
  // Copies the results to the call's arguments. Returns what else has changed, in words.
  virtual std::string read(const Call& call, const Layout& layout) = 0;
};

std::unique_ptr<CallMemory> memory_of_host();
std::unique_ptr<CallMemory> memory_of_gpu();  // timed_gpu.cpp

struct Timed {
  double wall_ms = 0;           // by the judge's clock
  double processor_ms = 0;      // the same, less the runner's wait for a processor
  double wait_ms = 0;           // what CallMemory::write() returned
  std::size_t extra_bytes = 0;  // that the call took, by the runner's meter: for people to read
};

class TimedRunner {
 public:
  // `command` starts the runner. A call that takes longer than `seconds` is an error.
  TimedRunner(std::vector<std::string> command, double seconds, std::unique_ptr<CallMemory> memory);

  // Runs one call, and leaves the results in the outputs of its arguments. Throws what
  // remote_call() throws.
  Timed call(const Call& call);

 private:
  void stop();
  void go_on() const;

  std::unique_ptr<CallMemory> memory_;
  std::unique_ptr<Runner> runner_;
  double seconds_;
};

}  // namespace flash::grading
