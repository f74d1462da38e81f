// The checks of one OS thread's running block: each access of an instrumented kernel to shared and device memory passes here.
//
// Races are found by what orders accesses, not by when they happened to come, so that they are found whatever the schedule is. (Of
// many readers of a word two are remembered, and of its writers the last: where several races meet in one word, which of them is
// reported may depend on the order.) The rules, with t an access time of the block's own clock, which every synchronization advances:
//   __syncthreads()       orders all before it before all after it, within the block
//   __syncwarp(mask)      does so for the lanes in the mask, and for what these knew of other lanes
//   atomic operations     on the same address by two threads are no race. After a __threadfence() of its own, a thread's atomic
//                         operation also tells at that address what the thread did before the fence, and what was ordered before
//                         that: by a barrier, by __syncwarp(), or because it was told itself. Whoever operates on the address
//                         later is told, and so are the lanes and the block that it then synchronizes with.
//   shuffles and votes    order nothing (CUDA promises no memory ordering of them)
//   the end of a launch   orders everything
// Two accesses to the same byte that nothing orders, one of them a write, are a race, between threads of a block and between
// blocks; also when both would write the same value.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/simt/shadow.hpp"
#include "common/simt/simt.hpp"
#include "common/simt/witness.hpp"

namespace flash::simt {

class Worker;
class SharedMemory;

class Checker final : public Witness {
 public:
  // Of the blocks that `worker` runs, in this shared memory.
  Checker(Worker& worker, SharedMemory& shared) : worker_(worker), shared_(shared) {}

  // The checker of the block that this OS thread is running, or nullptr.
  static inline Checker* active();

  void start_block(unsigned threads) override;
  void end_block() override;
  void running(unsigned thread) override;
  void barrier() override;
  void warp_sync(unsigned warp, std::uint32_t lanes) override;

  // At most 64 bytes. `aligned`: the compiler counts on the address being a multiple of `bytes`, a power of two.
  void access(const void* address, std::size_t bytes, bool is_write, bool aligned, const void* pc);
  void atomic(const void* address, std::size_t bytes, const void* pc);
  // cp.async: its target may be written from the start of the copy on, and is not written before the end.
  void async_copy_starts(const void* to, const void* from, std::size_t bytes, std::size_t valid, const void* pc);
  void async_copy_ends(const void* to, std::size_t bytes, const void* pc);
  void fence();

  // What all blocks of the launch moved; read and forgotten by run().
  Counters take_moved();

 private:
  static constexpr unsigned kMostThreads = 1024, kWarpSize = 32;
  enum class Kind { kRead, kWrite, kAtomic };

  // What an address belongs to.
  struct Place {
    Shadow* shadow = nullptr;
    char* begin = nullptr;
    std::size_t bytes = 0;
    bool is_global = false;
  };

  // What some thread has been told of others by way of atomic operations: of a block (known by when it started) all that its threads
  // did before a time, of a thread all that it did before a time.
  struct Knowledge {
    std::map<std::uint32_t, std::uint32_t> blocks;
    std::map<std::pair<std::uint32_t, unsigned>, std::uint32_t> threads;

    bool empty() const { return blocks.empty() && threads.empty(); }
    void merge(const Knowledge& other);
  };

  void check(const Place& place, const char* address, std::size_t bytes, Kind kind, bool aligned, std::uintptr_t pc);
  void conflict_with(const Cell& cell, int slot, const Place& place, const char* address, std::size_t bytes, Kind kind,
                     std::uintptr_t pc);
  bool find_place(const char* address, std::size_t bytes, Place& place) const;
  void outside(const char* address, std::size_t bytes, Kind kind, std::uintptr_t pc);
  std::uint32_t tick();
  bool is_argument(const char* address) const;
  void count(Shadow& shadow, bool is_global, std::size_t bytes, Kind kind);
  bool ordered_before_me(std::uint32_t time, unsigned thread, bool is_global) const;
  bool released_to_me(std::uint32_t time, unsigned thread) const;
  bool told_to_me(std::uint32_t time, unsigned thread) const;
  std::uint32_t start_of_block_at(std::uint32_t time) const;
  void synchronize(const void* address, bool is_global);

  void found(FindingKind kind, const Location& where, const std::string& text);                 // and the kernel goes on
  [[noreturn]] void stop(FindingKind kind, std::uintptr_t pc, const std::string& text);         // and the kernel ends
  bool is_new(FindingKind kind, std::uintptr_t pc, std::uint32_t other_pc);
  std::string address_text(const Place& place, const char* address, std::size_t bytes) const;
  std::uint32_t time_of(unsigned thread) const { return clock_[thread] > barrier_time_ ? clock_[thread] : barrier_time_; }

  Worker& worker_;
  SharedMemory& shared_;
  std::uint64_t number_of_launch_ = 0;
  unsigned thread_ = 0;
  const char* stack_begin_ = nullptr;  // of the running thread
  std::uintptr_t module_base_ = 0;

  // Advanced by every synchronization, never set back. The process's, since memory outlives the OS thread that touched it; checked
  // launches run one at a time.
  static std::uint32_t time_;
  std::uint32_t launch_start_ = 1;  // what is older is of a launch that is over
  std::uint32_t block_start_ = 1;   // what is older is of another block
  std::uint32_t barrier_time_ = 1;  // at the block's last barrier
  struct Started {
    std::uint32_t time;
    std::uint64_t block;
  };
  std::vector<Started> blocks_;  // of this launch, by time
  std::array<std::uint32_t, kMostThreads> clock_{};                          // at a thread's last own synchronization
  std::array<std::array<std::uint32_t, kWarpSize>, kMostThreads> known_{};   // of each lane of its warp: ordered up to this time
  std::array<std::uint32_t, kMostThreads> fenced_{};                         // when it last called __threadfence(); 0: never
  std::unordered_map<const void*, Knowledge> global_releases_, shared_releases_;  // by address: what is told there
  bool anything_released_ = false;                                           // in this launch
  std::unordered_map<unsigned, Knowledge> acquired_;                         // by thread, since the last barrier
  Knowledge acquired_by_block_;                                              // before it
  std::set<std::array<std::uintptr_t, 3>> reported_;
  Counters moved_;
  bool counts_ = true;
};

extern __thread Checker* active_checker __attribute__((tls_model("initial-exec")));

inline Checker* Checker::active() { return active_checker; }

}  // namespace flash::simt
