// The checks of the block that an OS thread runs. They see each access of an instrumented kernel to
// shared and device memory.
//
// README.md says what a race is and what orders two accesses. What counts is the order, not when
// the accesses happened, so a race is found under every schedule. (Of the readers of a word two are
// remembered, and of its writers the last: of several races in one word, the order may decide which
// one is reported.) Each synchronization advances the clock. What was ordered before one thread is
// passed on:
// - by __syncwarp(mask), to the lanes in the mask;
// - by an atomic operation of a thread that has called __threadfence(): to a thread with a later
//   atomic operation on the address, and to the lanes and the block that it then synchronizes with.
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

  // At most 64 bytes. `aligned`: the compiler counts on the address being a multiple of `bytes`, a
  // power of two.
  void access(const void* address, std::size_t bytes, bool is_write, bool aligned,
              std::uintptr_t pc);
  void atomic(const void* address, std::size_t bytes, std::uintptr_t pc);
  // cp.async: its target may be written from the start of the copy on, and is not written before
  // the end.
  void async_copy_starts(const void* to, const void* from, std::size_t bytes, std::size_t valid,
                         std::uintptr_t pc);
  void async_copy_ends(const void* to, std::size_t bytes, std::uintptr_t pc);
  void fence();

  // What all blocks of the launch moved; reset by this call.
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

  // What a thread learned through atomic operations: up to which times the accesses of a block
  // (identified by its start), and of a single thread, are ordered before it.
  struct Knowledge {
    std::map<std::uint32_t, std::uint32_t> blocks;
    std::map<std::pair<std::uint32_t, unsigned>, std::uint32_t> threads;

    bool empty() const { return blocks.empty() && threads.empty(); }
    void merge(const Knowledge& other);
  };

  void check(const Place& place, const char* address, std::size_t bytes, Kind kind, bool aligned,
             std::uintptr_t pc);
  void conflict_with(const Cell& cell, int slot, const Place& place, const char* address,
                     std::size_t bytes, Kind kind, std::uintptr_t pc);
  bool find_place(const char* address, std::size_t bytes, Place& place) const;
  void outside(const char* address, std::size_t bytes, Kind kind, std::uintptr_t pc);
  std::uint32_t tick();
  bool is_argument(const char* address) const;
  static const char* verb(Kind kind);
  void count(Shadow& shadow, bool is_global, std::size_t bytes, Kind kind);
  bool ordered_before_me(std::uint32_t time, unsigned thread, bool is_global) const;
  bool released_to_me(std::uint32_t time, unsigned thread) const;
  bool told_to_me(std::uint32_t time, unsigned thread) const;
  std::uint32_t start_of_block_at(std::uint32_t time) const;
  void synchronize(const void* address, bool is_global);

  void found(FindingKind kind, const Location& where, const Location& other,
             const std::string& text);  // the kernel goes on
  // Ends the kernel; the message begins with the running thread.
  [[noreturn]] void stop(FindingKind kind, std::uintptr_t pc, const std::string& text);
  bool is_new(FindingKind kind, std::uintptr_t pc, std::uint32_t other_pc);
  std::string address_text(const Place& place, const char* address, std::size_t bytes) const;
  std::uint32_t time_of(unsigned thread) const {
    return clock_[thread] > barrier_time_ ? clock_[thread] : barrier_time_;
  }

  Worker& worker_;
  SharedMemory& shared_;
  std::uint64_t number_of_launch_ = 0;
  unsigned thread_ = 0;
  const char* stack_begin_ = nullptr;  // of the running thread
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
  // Of each lane of a thread's warp: ordered before the thread up to this time.
  std::array<std::array<std::uint32_t, kWarpSize>, kMostThreads> known_{};
  std::array<std::uint32_t, kMostThreads> fenced_{};  // at the last __threadfence(); 0: none
  // By address: what is told there.
  std::unordered_map<const void*, Knowledge> global_releases_, shared_releases_;
  bool anything_released_ = false;                    // in this launch
  std::unordered_map<unsigned, Knowledge> acquired_;  // by thread, since the last barrier
  Knowledge acquired_by_block_;                       // before it
  std::set<std::array<std::uintptr_t, 3>> reported_;
  Counters moved_;
  bool counts_ = true;
};

extern __thread Checker* active_checker __attribute__((tls_model("initial-exec")));

inline Checker* Checker::active() { return active_checker; }

}  // namespace flash::simt
