// The checks of the block that an OS thread runs. They see each access of an instrumented kernel to
// shared and device memory: what orders accesses is in clocks.hpp, what an address belongs to in
// places.hpp, what is remembered of each byte in run/shadow.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "emulator/check/clocks.hpp"
#include "emulator/check/places.hpp"
#include "emulator/check/registers.hpp"
#include "emulator/check/straight_code.hpp"
#include "emulator/check/warp_accesses.hpp"
#include "emulator/check/words.hpp"
#include "emulator/run/observers.hpp"
#include "emulator/run/simt.hpp"

namespace flash::simt {

class Checker final : public Checks {
 public:
  Checker(Worker& worker, SharedMemory& shared) : worker_(worker), places_(worker, shared) {}

  // The checker of the block that this OS thread is running, or nullptr.
  static inline Checker* active();
  // The checker of the block that `worker` runs; nullptr if it is not checked.
  static Checker* of(const Worker& worker) { return static_cast<Checker*>(worker.checks()); }

  void start_block(unsigned threads) override;
  void end_block() override;
  void running(unsigned thread) override;
  void barrier() override;
  void warp_sync(unsigned warp, std::uint32_t lanes) override { clocks_.warp_sync(warp, lanes); }
  void fence() override { clocks_.fence(); }
  void lanes_meet(unsigned warp, std::uint32_t lanes) override;
  void nap(unsigned nanoseconds) override { waited_[clocks_.thread()] += nanoseconds; }
  void atomic(const void* address, std::size_t bytes, std::uintptr_t pc, bool compares) override;
  void async_copy_starts(const void* to, const void* from, std::size_t bytes, std::size_t valid,
                         std::uintptr_t pc) override;
  void async_copy_ends(const void* to, std::size_t bytes, std::uintptr_t pc) override;

  // The running thread's stack reaches down to `place`.
  void reaches(const void* place, std::uintptr_t pc) {
    if (place >= lowest_) return;
    lowest_ = static_cast<const char*>(place);
    lowest_pc_ = pc;
  }
  // At most 64 bytes.
  void access(const void* address, std::size_t bytes, bool is_write, std::uintptr_t pc) {
    const auto* const begin = static_cast<const char*>(address);
    if (begin < stack_begin_ || begin >= stack_top_)
      return is_write ? write_elsewhere(begin, bytes, pc) : read_elsewhere(begin, bytes, pc);
    reaches(begin, pc);  // the thread's local memory
    if (uses_registers_) check_registers(begin, bytes, is_write, pc);
  }

  // ---- Hopper -----------------------------------------------------------------------------------

  // Some threads have met.
  void some_have_met() { count_work(), share_work(); }
  Clocks& clocks() { return clocks_; }
  void async_access(const AsyncStep& step, const void* address, std::size_t bytes, AccessKind kind);
  // The target of a TMA load: written from the start of the copy on, unwritten before its end.
  void async_write_starts(const AsyncStep& step, const void* address, std::size_t bytes);
  void async_write_ends(const void* address, std::size_t bytes);
  // Memory that the running thread's code accesses, though not in instrumented code.
  void access_by_emulator(const void* address, std::size_t bytes, bool is_write, std::uintptr_t pc);

  // The running thread's warp does `what` with the barrier `object`, in this phase.
  void happens(std::uintptr_t pc, const char* what, const void* object, std::uint64_t number);

  RegisterWatch& registers_of(unsigned thread) { return registers_[thread]; }
  // A thread's wgmma, number `product` of its warpgroup, uses these registers for D or A.
  void use_registers(unsigned thread, const void* begin, std::size_t bytes, bool is_d,
                     std::uint64_t product, std::uintptr_t pc);

 private:
  struct Report {
    FindingKind kind;
    Location where, other;
    std::string text;
  };

  void count_work();
  // Threads have met, or the block ends.
  void share_work();
  // How much work lies before the place where the thread is: its own, and what it may have waited
  // for.
  std::uint64_t time_of(unsigned thread) const { return time_ + work_[thread] + waited_[thread]; }
  void wait_until(unsigned thread, std::uint64_t time) {
    waited_[thread] += std::max(time, time_of(thread)) - time_of(thread);
  }
  void count_local_bytes();
  void count_shared_bytes();
  // Whether a read is of shared memory that many threads have read since the last barrier: it is
  // counted, and there is nothing to check or to remember.
  bool adds_nothing(const char* begin, std::size_t bytes);
  bool is_read_by_many(const Cell& cell, bool is_global) const {
    return clocks_.is_since_barrier(cell.time[Cell::kReader]) &&
           clocks_.is_since_barrier(cell.time[Cell::kOtherReader]) && !cell.has_one_warp() &&
           clocks_.before_all(cell.time[Cell::kWriter], cell.actor(Cell::kWriter), is_global);
  }
  // Not on the running thread's stack.
  void read_elsewhere(const char* begin, std::size_t bytes, std::uintptr_t pc);
  void write_elsewhere(const char* begin, std::size_t bytes, std::uintptr_t pc);
  void access_shared(Touch touch);
  void end_step() {
    if (is_in_step_ && counts_ && copied_from_ == nullptr) worker_.pass_turn();
  }
  void check(const Touch& touch);
  // Whether they may be accessed, and were written.
  void check_bytes(const Touch& touch);
  void check_proxy(const Cell& cell, const Touch& touch);
  void check_registers(const char* begin, std::size_t bytes, bool is_write, std::uintptr_t pc);
  void conflict_with(const Cell& cell, int slot, const Touch& touch);
  void count(const Touch& touch);
  // Not shared memory, not an allocation, or a forbidden part of one.
  void outside(const Touch& touch);

  // The kernel goes on. text(where, other) is for the code at `pc` and, if it is not 0, at
  // `other_pc` in the module; of findings at the same places only the first is kept.
  template <class Text>
  void found(FindingKind kind, std::uintptr_t pc, std::uint32_t other_pc, Text text) {
    if (!is_new(kind, pc, other_pc)) return;
    add(report(kind, pc, other_pc, text));
    if (worker_.launch().stop) worker_.abandon();
  }
  bool is_new(FindingKind kind, std::uintptr_t pc, std::uint32_t other_pc) {
    return reported_.insert({static_cast<std::uintptr_t>(kind), pc, other_pc}).second;
  }
  void add(const Report& one);
  Report report(FindingKind kind, std::uintptr_t pc, std::uint32_t other_pc,
                const std::function<std::string(const std::string&, const std::string&)>& text);
  // Ends the kernel; the message begins with the running thread.
  [[noreturn]] void stop(FindingKind kind, std::uintptr_t pc, const std::string& text);

  Worker& worker_;
  Clocks clocks_;
  Places places_;
  Words words_{worker_, clocks_, places_};
  WarpAccesses warp_accesses_;
  StraightCode straight_code_;
  std::array<RegisterWatch, kMostThreads> registers_{};
  unsigned threads_ = 0;                              // of the block
  std::array<std::uint64_t, kMostThreads> work_{};    // of each since the last barrier
  std::array<std::uint64_t, kMostThreads> waited_{};  // the same of others that each waited for
  std::uint64_t time_ = 0;                            // of the last barrier
  // When an atomic operation last changed 8 bytes. A thread that comes to them may have waited
  // until then, as for a lock. All blocks begin at 0.
  std::unordered_map<std::uintptr_t, std::uint64_t> changed_at_, changed_in_block_;
  std::uint64_t work_before_ = 0;  // of flash_simt_work
  std::set<std::array<std::uintptr_t, 3>> reported_;
  // Where threads read a word that they then gave to an atomicCAS(), as in the loop of CUDA's
  // manual. Such a read may race with atomic operations; until the block ends, any may turn out to
  // be one.
  using Read = std::pair<std::uint32_t, const Cell*>;      // the line, and the word
  using Lines = std::pair<std::uintptr_t, std::uint32_t>;  // of a race
  std::set<Read> compared_;
  std::map<Read, Lines> perhaps_compared_;
  std::map<Lines, Report> perhaps_races_;
  std::uint64_t number_of_launch_ = 0;
  bool is_first_block_ = false;  // of the launch
  std::uintptr_t module_base_ = 0;
  // Of the running thread's stack: its ends, and how far it has reached since the thread's turn
  // began.
  const char *stack_begin_ = nullptr, *stack_top_ = nullptr, *lowest_ = nullptr;
  std::uintptr_t lowest_pc_ = 0;
  LazyArray<char> copy_{FiberStacks::kStride * kMostThreads};  // of all stacks
  bool uses_registers_ = false;  // registers_ has something of this block
  bool counts_ = true;
  const void* copied_from_ = nullptr;  // by the cp.async that writes now
  bool counts_warps_ = false;
  bool is_in_step_ = false;
};

extern __thread Checker* active_checker __attribute__((tls_model("initial-exec")));

// The arithmetic instructions of this OS thread: of code that the judge of a class has compiled.
extern "C" __thread std::uint64_t flash_simt_work
    __attribute__((tls_model("initial-exec"), visibility("default")));

// Of the same code: how far behind a stack its copy lies, in which code keeps what calls and pushes
// leave there; 0 while no kernel runs.
extern "C" __thread std::ptrdiff_t flash_simt_copy
    __attribute__((tls_model("initial-exec"), visibility("default")));

inline Checker* Checker::active() { return active_checker; }

}  // namespace flash::simt
