// The clock of the checks, and which accesses of a launch are ordered before others.
//
// README.md says what orders two accesses. What counts is the order, not when the accesses
// happened: each synchronization advances the clock, and passes on what was ordered before one
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "emulator/check/releases.hpp"
#include "emulator/run/shadow.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

// The actors that access memory: the threads of a block by their numbers, and from kFirstAgent on
// *agents*, which do it asynchronously: the copies that land at an mbarrier, the stores of a
// thread, the wgmma of a warpgroup. When there are too many, agents share the last number.
inline constexpr unsigned kFirstAgent = kMostThreads, kMostActors = 1280;

// What the arrivals at a barrier pass on to the threads that wait for it: accesses of an actor
// before times[actor].
struct SyncClock {
  std::vector<std::uint32_t> times;  // of kMostActors; empty: nothing
  Knowledge told;
};

// What an agent does, from code at `pc`.
struct AsyncStep {
  static constexpr unsigned kNobody = ~0u;

  unsigned agent;
  std::uint32_t time;
  std::uintptr_t pc;
  unsigned thread;                   // whose own accesses are ordered before it
  std::vector<std::uint32_t> known;  // of kMostActors
};

class Clocks {
 public:
  void start_launch();  // before start_block()
  void start_block(unsigned threads, std::uint64_t number);
  void running(unsigned thread) {
    thread_ = thread;
    known_to_me_ = row(thread);
  }
  void barrier();
  void warp_sync(unsigned warp, std::uint32_t lanes);
  void fence();
  // An atomic operation of the running thread.
  void synchronize(const void* address, bool is_global);

  // The running thread arrives at a barrier; a thread has waited for it.
  void release(SyncClock& clock);
  void acquire(unsigned thread, const SyncClock& clock);
  std::uint32_t now();  // a time of the running thread: later accesses of it are later

  // ---- agents -----------------------------------------------------------------------------------

  struct Agent {
    const char* what;  // "tma_load()"
    unsigned thread;   // that asked it last
  };
  // A new one. Accesses of it up to `time` are ordered before a thread, or those that acquire a
  // clock, when learn() says so.
  unsigned new_agent(const char* what);  // it does, for the running thread
  const Agent& agent(unsigned number) const { return agents_[number - kFirstAgent]; }
  void learn(unsigned thread, unsigned agent, std::uint32_t time);
  void learn(SyncClock& clock, unsigned agent, std::uint32_t time);
  // The running thread has asked for a step of the agent; with `by_warpgroup` all threads of its
  // warpgroup have, and so what is not ordered before one of them is a race.
  AsyncStep async_step(unsigned agent, bool by_warpgroup, std::uintptr_t pc);

  // fence_proxy_async(); and whether `thread` has called it between `time` and the agent's step.
  void proxy_fence() { proxy_fences_[thread_].push_back(now()); }
  bool is_fenced(unsigned thread, std::uint32_t time, const AsyncStep& step) const;

  // ---- order ------------------------------------------------------------------------------------

  unsigned thread() const { return thread_; }  // that runs
  std::uint32_t time() const { return time_; }
  // When the running thread last synchronized.
  std::uint32_t my_time() const {
    return clock_[thread_] > barrier_time_ ? clock_[thread_] : barrier_time_;
  }

  // Whether what an actor did at `time` is ordered before the running thread; before an agent's
  // step.
  bool before_me(std::uint32_t time, unsigned actor, bool is_global) const {
    if (time >= block_start_)
      return (actor < kMostThreads && (time < barrier_time_ || actor == thread_)) ||
             time < known_to_me_[actor] || released_to_me(time, actor);
    // Shared memory is new for each block, and earlier launches are over.
    return !is_global || time < launch_start_ || released_to_me(time, actor);
  }
  bool before(const AsyncStep& step, std::uint32_t time, unsigned actor, bool is_global) const;
  // Whether it is ordered before every thread of the block without more than its last barrier.
  bool before_all(std::uint32_t time, unsigned actor, bool is_global) const {
    return time < barrier_time_ && actor < kMostThreads &&
           (time >= block_start_ || time < launch_start_ || !is_global);
  }
  bool is_since_barrier(std::uint32_t time) const { return time >= barrier_time_; }
  bool is_in_this_block(std::uint32_t time) const { return time >= block_start_; }
  // The block of the launch that ran at a time.
  std::uint64_t block_at(std::uint32_t time) const { return started_at(time).block; }
  // Whether the block uses agents, or what orders threads of several warps.
  bool is_wide() const { return is_wide_; }

 private:
  struct Started {
    std::uint32_t time;
    std::uint64_t block;
  };

  static std::uint32_t tick();
  std::uint32_t* row(unsigned thread) const { return known_.data() + thread * kMostActors; }
  const Started& started_at(std::uint32_t time) const;
  bool released_to_me(std::uint32_t time, unsigned actor) const {
    return releases_.any() && told_to_me(time, actor);
  }
  bool told_to_me(std::uint32_t time, unsigned actor) const;
  template <class Use>
  void for_each_actor(Use use) const {
    for (unsigned thread = 0; thread < threads_; ++thread) use(thread);
    for (unsigned i = 0; i < agents_.size(); ++i) use(kFirstAgent + i);
  }
  // For each that a thread of the warp of `first` may know of.
  template <class Use>
  void for_each_known(unsigned first, Use use) const {
    if (is_wide_) return for_each_actor(use);
    for (unsigned lane = 0; lane < kWarpSize; ++lane) use(first + lane);
  }

  // Every synchronization advances it; it never goes back. One for the process, since memory
  // outlives the OS thread that accessed it; checked launches run one at a time.
  static std::uint32_t time_;
  std::uint32_t launch_start_ = 1;  // earlier accesses belong to an earlier launch
  std::uint32_t block_start_ = 1;   // earlier accesses belong to another block
  std::uint32_t barrier_time_ = 1;  // at the block's last barrier
  unsigned threads_ = 0;            // of the block
  unsigned thread_ = 0;
  const std::uint32_t* known_to_me_ = nullptr;  // the running thread's row of known_
  bool is_wide_ = false;
  std::array<std::uint32_t, kMostThreads> clock_{};  // at a thread's last own synchronization
  // For each thread a row of kMostActors times: accesses before them are ordered before the thread.
  // Only those of its own warp count, unless the block is wide. Times of earlier blocks are left:
  // they are before all accesses of this block.
  LazyArray<std::uint32_t> known_{std::size_t{kMostThreads} * kMostActors};
  // Up to which times fences of the block's threads cover what each thread did, and what all did
  // before a barrier; and the same at the last barrier, which tells all threads.
  struct Fenced {
    std::array<std::uint32_t, kMostThreads> of_each{};
    std::uint32_t of_all = 0;
  } fenced_, fenced_at_barrier_;
  bool has_fences_ = false;
  std::array<std::uint32_t, kMostThreads> barrier_of_fence_{};  // before a thread's last fence
  std::vector<Started> blocks_;                                 // of this launch, by time
  Releases releases_;
  std::vector<Agent> agents_;
  std::array<std::vector<std::uint32_t>, kMostThreads> proxy_fences_{};  // their times
};

}  // namespace flash::simt
