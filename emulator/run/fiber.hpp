// Fibers: threads that take turns on one OS thread, each with its own stack, switched in user
// space. A CUDA thread is a fiber because a barrier of 1024 threads means 1024 switches, and with
// OS threads each would be a system call.
#pragma once

#include <cstddef>

namespace flash::simt {

// Saves the caller's registers on its stack and its stack pointer in *from, and continues where the
// stack `to` was left. Returns when the caller is resumed. Saves the registers that a call
// preserves, but not the floating-point environment.
extern "C" void flash_simt_switch(void** from, void* to);

// The stacks of up to `count` fibers. Guard pages below each stack turn an overflow into a fault.
// They are made when a stack is first used, since a process has some 65000 mappings and each guard
// costs two.
class FiberStacks {
 public:
  explicit FiberStacks(std::size_t count);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  // A stack pointer that starts `entry` at the top of stack `index` when it is switched to. `entry`
  // never returns.
  void* prepared(std::size_t index, void (*entry)());

  // The lowest usable byte of a stack.
  char* begin(std::size_t index) const { return memory_ + index * kStride + kGuard; }
  // Where its first function begins. Tops are at different offsets: otherwise the stacks of a block
  // would share a few lines of the L1 cache.
  char* top(std::size_t index) const { return begin(index) + kStackBytes - 64 * (index % 32); }

  // The stack whose guard page `address` lies in, or -1.
  long overflowed(const void* address) const;

  static constexpr std::size_t kGuard =
      64 * 1024;  // a multiple of every page size in use (4, 16 and 64 KiB)
  static constexpr std::size_t kStackBytes = 192 * 1024;  // only what is touched takes memory
  static constexpr std::size_t kStride = kGuard + kStackBytes;

 private:
  std::size_t count_;
  std::size_t guarded_ = 0;  // stacks that have their guard
  char* memory_;
};

}  // namespace flash::simt
