// What a worker tells check/ and hopper/ about the block that it runs; it knows them only by these
// interfaces.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "emulator/headers/device/host_interface.hpp"
#include "emulator/run/turns.hpp"

namespace flash::simt {

class SharedMemory;
class Worker;
struct Module;

// The most that the stack of a thread held, its kernel, and where.
struct LocalMemory {
  std::size_t bytes = 0;
  std::string kernel{};
  const Module* module = nullptr;
  std::uintptr_t pc = 0;
};

// The checks of a block.
class Checks {
 public:
  virtual ~Checks() = default;

  static inline Work work{};  // since reset_counters(), but for its `readers`
  static inline std::bitset<kMostThreads> readers{};
  static inline std::size_t workspace_bytes = 0;  // simt.hpp
  static inline LocalMemory local_memory{};       // since reset_host_calls()

  // A block starts and ends; from now on this thread runs; all threads have met; these lanes of a
  // warp have, in an operation that orders memory, or in any; the running thread calls
  // __threadfence(), or __nanosleep().
  virtual void start_block(unsigned threads) = 0;
  virtual void end_block() = 0;
  virtual void running(unsigned thread) = 0;
  virtual void barrier() = 0;
  virtual void warp_sync(unsigned warp, std::uint32_t lanes) = 0;
  virtual void lanes_meet(unsigned warp, std::uint32_t lanes) = 0;
  virtual void fence() = 0;
  virtual void nap(unsigned nanoseconds) = 0;

  virtual void atomic(const void* address, std::size_t bytes, std::uintptr_t pc, bool compares) = 0;
  // cp.async: its target may be written from the start of the copy on, and is not written before
  // the end.
  virtual void async_copy_starts(const void* to, const void* from, std::size_t bytes,
                                 std::size_t valid, std::uintptr_t pc) = 0;
  virtual void async_copy_ends(const void* to, std::size_t bytes, std::uintptr_t pc) = 0;
};
std::unique_ptr<Checks> make_checks(Worker& worker, SharedMemory& shared);

// The units of a block that work beside its threads: TMA, tensor cores, barriers of their own.
class Units {
 public:
  virtual ~Units() = default;

  // The running thread is about to return; and as the last one of its block.
  virtual void thread_returns() = 0;
  virtual void block_ends() = 0;
  // Nobody can go on: lets the next thing happen that needs no thread. False if there is none.
  virtual bool something_completes() = 0;
  // Ends the kernel with a finding if threads wait for what will not happen.
  virtual void explain_deadlock() = 0;
};

}  // namespace flash::simt
