// The shared memory of the block that an OS thread is running.
//
// A kernel for Hopper also sees addresses in the shared memory window, of 18 bits. Dynamic shared
// memory begins there at a multiple of 16 that is not one of 1024, so that a tile has a right
// address only if the kernel sees to it; static shared memory follows, as aligned as its variables
// ask for.
//
// Dynamic shared memory ends at a guard page. Static shared memory is the thread-local memory of
// the kernel's library: `__shared__` stands for `static thread_local`, each OS thread has a copy,
// and the dynamic linker says where it lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emulator/run/module.hpp"
#include "emulator/run/shadow.hpp"

namespace flash::simt {

class SharedMemory {
 public:
  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Fills both memories with 0xff, which is NaN in every float type. `forget` also marks them as
  // unwritten, for the checks.
  void start_block(const Module& module, std::size_t dynamic_bytes, bool forget);

  char* dynamic() const { return dynamic_; }
  std::size_t dynamic_bytes() const { return dynamic_bytes_; }
  // For messages: how much of it there is, and what says so.
  std::string dynamic_text() const;
  char* fixed() const { return fixed_; }
  std::size_t fixed_bytes() const { return fixed_bytes_; }
  Shadow& dynamic_shadow() { return dynamic_shadow_; }
  Shadow& fixed_shadow() { return fixed_shadow_; }

  // The address in the window; nothing for memory that is not shared.
  std::optional<std::uint32_t> window_address(const void* memory) const;
  // The `bytes` at an address in the window; nullptr where they are not all shared memory.
  char* at(std::uint32_t window_address, std::size_t bytes) const;

  // Whether `address` lies in the guard page.
  bool is_guard(const void* address) const;

  static inline SharedAccesses accesses{};  // in checked launches

  static constexpr std::size_t kMost = 227 * 1024;  // a block's, as on Hopper
  static constexpr std::size_t kWithoutAsking = 48 * 1024;

 private:
  char* memory_ = nullptr;  // kPages bytes, then a guard of kGuard
  char* dynamic_ = nullptr;
  std::size_t dynamic_bytes_ = 0;
  char* fixed_ = nullptr;
  std::size_t fixed_bytes_ = 0;
  std::uint32_t fixed_window_ = 0;  // where static shared memory begins in the window
  Shadow dynamic_shadow_, fixed_shadow_;
  const Module* module_ = nullptr;  // of guards_: bytes of fixed_ that say that a constructor ran
  std::vector<std::pair<std::size_t, std::size_t>> guards_;
};

}  // namespace flash::simt
