// Whose turn it is among the threads of a block: the order of the schedule.
#pragma once

#include <bitset>
#include <cstdint>

#include "emulator/run/simt.hpp"

namespace flash::simt {

inline constexpr unsigned kMostThreads = 1024;  // of a block
inline constexpr unsigned kNobody = ~0u;

class Turns {
 public:
  void start_block(const Schedule& schedule, unsigned threads, std::uint64_t block);

  void set_runnable(unsigned thread) { runnable_.set(turn_of(thread)); }
  void set_waiting(unsigned thread) { runnable_.reset(turn_of(thread)); }

  // Who runs after `thread`; kNobody: all wait.
  unsigned next(unsigned thread);
  // The thread whose next() is the first one of the block.
  unsigned before_the_first() const { return turn_of(kMostThreads - 1); }

  // CUDA leaves open when a copy lands. Whether it lands at the later of two moments: forward
  // always, reverse never, random now and then.
  bool prefers_late();

 private:
  unsigned turn_of(unsigned thread) const {
    return order_ == Order::kReverse ? kMostThreads - 1 - thread : thread;
  }
  std::uint64_t random();

  Order order_ = Order::kForward;
  unsigned threads_ = 0;
  std::uint64_t random_ = 1;
  std::bitset<kMostThreads> runnable_;  // by the order of turns
};

}  // namespace flash::simt
