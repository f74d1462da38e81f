// Calls a student's function in another process and takes the time: for the leaderboard, whose
// judge owns the clock, the memory of each call, and the check of each result.
//
//   map     the runner gets fresh memory, full of NaN
//   stop    the kernel stops the runner's process (SIGSTOP): it can do nothing until the clock runs
//   write   the judge writes the inputs and evicts them from all caches
//   begin   the judge reads its clock and lets the runner go on
//   end     the runner answers; the judge reads its clock and stops the process again
//   check   the judge looks at the memory, in which nobody can write any more
//
// So work cannot be done before the inputs are there, nor after the answer. A call's time holds one
// exchange of messages and two switches between processes: measure these by a call that has nothing
// to do, in a runner without student code, and subtract them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "grading/judge/remote.hpp"

namespace flash::grading {

struct Timed {
  double wall_ms = 0;           // by the judge's clock
  double processor_ms = 0;      // that the kernel gave to the runner's process in the same time
  std::size_t extra_bytes = 0;  // that the call took, by the runner's meter: for people to read
};

class TimedRunner {
 public:
  // `command` starts the runner. A call that takes longer than `seconds` is an error.
  TimedRunner(std::vector<std::string> command, double seconds);
  ~TimedRunner();
  TimedRunner(TimedRunner&&) noexcept;

  // Runs one call, and leaves the results in the outputs of its arguments. `evict` gets the memory
  // that the runner is about to read. Throws what remote_call() throws.
  Timed call(const Call& call, const std::function<void(void* memory, std::size_t bytes)>& evict);

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace flash::grading
