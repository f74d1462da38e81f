// The checks of the block that an OS thread runs. They see each access of an instrumented kernel to
// shared and device memory.
//
// README.md says what a race is and what orders two accesses. What counts is the order, not when
// the accesses happened: each synchronization advances the clock, and passes on what was ordered
// before one thread. The part that is for Hopper only is in hopper_checks.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/check/clocks.hpp"
#include "emulator/check/shadow.hpp"
#include "emulator/run/simt.hpp"

namespace flash::simt {

class Worker;
class SharedMemory;

// The registers that a thread's wgmma use: arrays on the thread's stack. From wgmma() to the wait
// that covers it nobody may touch D, nor write A; and an access before wgmma() needs a
// wgmma_fence() in between.
struct RegisterRange {
  const char* begin;
  const char* end;
  bool is_d;
  std::uint64_t last_product = 0;  // the number of the last wgmma that uses it
  bool in_flight = false;
  std::uintptr_t pc = 0;       // of that wgmma
  std::uintptr_t touched = 0;  // from where, since the last wgmma_fence(); 0: not at all

  bool overlaps(const char* from, std::size_t bytes) const {
    return from < end && from + bytes > begin;
  }
};

struct RegisterWatch {
  std::vector<RegisterRange> ranges{};
  bool has_fenced = false;

  void fence();
  // The products up to this number are over for the thread.
  void end_products(std::uint64_t last);
  // The range, which is remembered from now on. Others that overlap it are forgotten.
  RegisterRange& use(const char* begin, std::size_t bytes, bool is_d);
};

class Checker {
 public:
  // Of the blocks that `worker` runs, in this shared memory.
  Checker(Worker& worker, SharedMemory& shared) : worker_(worker), shared_(shared) {}

  // The checker of the block that this OS thread is running, or nullptr.
  static inline Checker* active();

  // What the scheduler tells: a block starts and ends; from now on this thread runs; all threads
  // have met; these lanes of a warp have, in an operation that orders memory.
  void start_block(unsigned threads);
  void end_block();
  void running(unsigned thread);
  void barrier();
  void warp_sync(unsigned warp, std::uint32_t lanes);

  // At most 64 bytes.
  void access(const void* address, std::size_t bytes, bool is_write, std::uintptr_t pc);
  void atomic(const void* address, std::size_t bytes, std::uintptr_t pc);
  // cp.async: its target may be written from the start of the copy on, and is not written before
  // the end.
  void async_copy_starts(const void* to, const void* from, std::size_t bytes, std::size_t valid,
                         std::uintptr_t pc);
  void async_copy_ends(const void* to, std::size_t bytes, std::uintptr_t pc);
  void fence();

  // ---- Hopper -----------------------------------------------------------------------------------

  // The running thread arrives at a barrier; a thread has waited for it.
  void release(SyncClock& clock);
  void acquire(unsigned thread, const SyncClock& clock);

  // A new agent. Accesses of it up to `time` are ordered before a thread, or those that acquire a
  // clock, when learn() says so.
  unsigned new_agent(const char* what);  // it does, for the running thread
  void learn(unsigned thread, unsigned agent, std::uint32_t time);
  void learn(SyncClock& clock, unsigned agent, std::uint32_t time);

  enum class Kind { kRead, kWrite, kAtomic };
  // What an agent does, from code at `pc`. The running thread has asked for it; with `by_warpgroup`
  // all threads of its warpgroup have, and so what is not ordered before one of them is a race.
  struct AsyncStep {
    unsigned agent;
    std::uint32_t time;
    std::uintptr_t pc;
    unsigned thread;                   // whose own accesses are ordered before it; kNobody: none
    std::vector<std::uint32_t> known;  // of kMostActors
  };
  static constexpr unsigned kNobody = ~0u;
  AsyncStep async_step(unsigned agent, bool by_warpgroup, std::uintptr_t pc);
  void async_access(const AsyncStep& step, const void* address, std::size_t bytes, Kind kind);
  // The target of a TMA load: written from the start of the copy on, unwritten before its end.
  void async_write_starts(const AsyncStep& step, const void* address, std::size_t bytes);
  void async_write_ends(const void* address, std::size_t bytes);

  void proxy_fence();
  // Memory that the running thread's code accesses, though not in instrumented code.
  void access_by_emulator(const void* address, std::size_t bytes, bool is_write, std::uintptr_t pc);
  // Whether what `thread` did at `time` is ordered before the running thread.
  bool is_ordered(std::uint32_t time, unsigned thread) const {
    return ordered_before_me(time, thread, false);
  }
  std::uint32_t now();  // a time of the running thread: later accesses of it are later

  RegisterWatch& registers_of(unsigned thread) { return registers_[thread]; }
  // A thread's wgmma, number `product` of its warpgroup, uses these registers for D or A.
  void use_registers(unsigned thread, const void* begin, std::size_t bytes, bool is_d,
                     std::uint64_t product, std::uintptr_t pc);

  static std::uint64_t shared_reads;  // since reset_counters()

 private:
  static constexpr unsigned kMostThreads = 1024, kWarpSize = 32;

  // What an address belongs to.
  struct Place {
    Shadow* shadow = nullptr;
    char* begin = nullptr;
    std::size_t bytes = 0;
    bool is_global = false;
  };

  // An access: of the running thread, or of an agent in `step`.
  struct Touch {
    const char* address;
    std::size_t bytes;
    Kind kind;
    std::uintptr_t pc;
    const AsyncStep* step = nullptr;
    Place place{};

    std::size_t offset() const { return static_cast<std::size_t>(address - place.begin); }
  };

  void check(const Touch& touch);
  // Whether they may be accessed, and were written.
  void check_bytes(const Touch& touch);
  void conflict_with(const Cell& cell, int slot, const Touch& touch);
  std::string actor_text(unsigned actor, std::uint32_t time) const;
  std::string why_unordered(const Access& other, const AsyncStep* step, int line_of_sync) const;
  struct Rounds {  // of a loop, that two accesses are in
    int line_of_sync = 0;
    bool now_is_next = false, then_is_next = false;
  };
  Rounds rounds(const Access& other, const AsyncStep* step, std::uintptr_t pc) const;
  void check_registers(const char* begin, std::size_t bytes, bool is_write, std::uintptr_t pc);
  std::uint32_t* row(unsigned thread) const { return known_.data() + thread * kMostActors; }
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
  bool ordered_before(const AsyncStep& step, std::uint32_t time, unsigned actor,
                      bool is_global) const;
  void check_proxy(const Cell& cell, const Touch& touch);
  bool find_place(Touch& touch) const;
  void outside(const Touch& touch);
  std::uint32_t tick();
  bool is_argument(const char* address) const;
  bool ordered_before_me(std::uint32_t time, unsigned thread, bool is_global) const;
  bool released_to_me(std::uint32_t time, unsigned thread) const;
  bool told_to_me(std::uint32_t time, unsigned thread) const;
  std::uint32_t start_of_block_at(std::uint32_t time) const;
  void synchronize(const void* address, bool is_global);

  // The kernel goes on. text(where, other) is for the code at `pc` and, if it is not 0, at
  // `other_pc` in the module; of findings at the same places only the first is kept.
  template <class Text>
  void found(FindingKind kind, std::uintptr_t pc, std::uint32_t other_pc, Text text) {
    if (reported_.insert({static_cast<std::uintptr_t>(kind), pc, other_pc}).second)
      report(kind, pc, other_pc, text);
  }
  void report(FindingKind kind, std::uintptr_t pc, std::uint32_t other_pc,
              const std::function<std::string(const std::string&, const std::string&)>& text);
  // Ends the kernel; the message begins with the running thread.
  [[noreturn]] void stop(FindingKind kind, std::uintptr_t pc, const std::string& text);
  std::string address_text(const Touch& touch) const;
  std::uint32_t time_of(unsigned thread) const {
    return clock_[thread] > barrier_time_ ? clock_[thread] : barrier_time_;
  }

  Worker& worker_;
  SharedMemory& shared_;
  std::uint64_t number_of_launch_ = 0;
  unsigned threads_ = 0;  // of the block
  unsigned thread_ = 0;
  const std::uint32_t* known_to_me_ = nullptr;  // the running thread's row of known_
  const char* stack_begin_ = nullptr;           // of the running thread
  std::uintptr_t module_base_ = 0;

  // Every synchronization advances it; it never goes back. One for the process, since memory
  // outlives the OS thread that accessed it; checked launches run one at a time.
  static std::uint32_t time_;
  std::uint32_t launch_start_ = 1;  // earlier accesses belong to an earlier launch
  std::uint32_t block_start_ = 1;   // earlier accesses belong to another block
  std::uint32_t barrier_time_ = 1;  // at the block's last barrier
  struct Started {
    std::uint32_t time;
    std::uint64_t block;
  };
  std::vector<Started> blocks_;                      // of this launch, by time
  std::array<std::uint32_t, kMostThreads> clock_{};  // at a thread's last own synchronization
  // For each thread a row of kMostActors times: accesses before them are ordered before the thread.
  // Only those of its own warp count, unless the block is wide. Times of earlier blocks are left:
  // they are before all accesses of this block.
  LazyArray<std::uint32_t> known_{std::size_t{kMostThreads} * kMostActors};
  bool is_wide_ = false;  // it uses agents, or what orders threads of several warps
  std::array<std::uint32_t, kMostThreads> fenced_{};  // at the last __threadfence(); 0: none
  // By address: what is told there.
  std::unordered_map<const void*, Knowledge> global_releases_, shared_releases_;
  bool anything_released_ = false;                    // in this launch
  std::unordered_map<unsigned, Knowledge> acquired_;  // by thread, since the last barrier
  Knowledge acquired_by_block_;                       // before it
  std::set<std::array<std::uintptr_t, 3>> reported_;

  struct Agent {
    const char* what;  // "tma_load()"
    unsigned thread;   // that asked it last
  };
  std::vector<Agent> agents_;
  Agent& agent(unsigned number) { return agents_[number - kFirstAgent]; }
  const Agent& agent(unsigned number) const { return agents_[number - kFirstAgent]; }
  std::array<std::vector<std::uint32_t>, kMostThreads> proxy_fences_{};  // their times
  std::array<RegisterWatch, kMostThreads> registers_{};
  bool counts_ = true;
};

extern __thread Checker* active_checker __attribute__((tls_model("initial-exec")));

inline Checker* Checker::active() { return active_checker; }

inline bool Checker::released_to_me(std::uint32_t time, unsigned thread) const {
  return anything_released_ && told_to_me(time, thread);
}

inline bool Checker::ordered_before_me(std::uint32_t time, unsigned thread, bool is_global) const {
  if (time >= block_start_)
    return (thread < kMostThreads && (time < barrier_time_ || thread == thread_)) ||
           time < known_to_me_[thread] || released_to_me(time, thread);
  // Shared memory is new for each block, and earlier launches are over.
  return !is_global || time < launch_start_ || released_to_me(time, thread);
}

}  // namespace flash::simt
