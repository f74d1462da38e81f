// Device memory, emulated: allocations apart from each other, filled with 0xff when new, out of reach of host code.
//
// Each allocation ends (up to 255 bytes of alignment) at a page that may not be touched, and its own pages may only be touched
// while a kernel or a copy runs: a host that follows a device pointer faults, as it does with a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "common/simt/shadow.hpp"

namespace flash::simt {

struct Allocation {
  char* begin = nullptr;
  std::size_t bytes = 0;
  char* pages = nullptr;  // what is mapped for it, the page behind it not included
  std::size_t page_bytes = 0;
  Shadow shadow;
};

class DeviceMemory {
 public:
  static DeviceMemory& instance();

  // nullptr when there is no room. 0 bytes give nullptr.
  void* allocate(std::size_t bytes);
  // False when `memory` is not the start of an allocation.
  bool free(void* memory);

  // The allocation whose pages `address` lies in, or nullptr. Lock-free: called for each access of a checked kernel.
  Allocation* find(const void* address) const {
    const auto offset = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(arena_);
    return offset < kArena ? page_table_[offset / kPage] : nullptr;
  }
  bool contains(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(arena_) < kArena;
  }
  // The allocation that ends or begins nearest to `address`, for messages.
  Allocation* nearest(const void* address);

  // Lets host code, which runs kernels and copies, touch device memory until the last of several such scopes ends.
  class Open {
   public:
    Open() { instance().open(); }
    ~Open() { instance().close(); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
  };

  std::size_t in_use() const { return in_use_; }
  void reset_traffic();

  static constexpr std::size_t kTotal = std::size_t{8} << 30;   // what the emulated device has
  static constexpr std::size_t kAlignment = 256;

 private:
  // Addresses are given out once around before they come again, so that a pointer to freed memory stays invalid for long.
  static constexpr std::size_t kArena = std::size_t{64} << 30;
  static constexpr std::size_t kPage = 4096;

  DeviceMemory();
  void open();
  void close();
  void protect(const Allocation& allocation, bool accessible);
  std::size_t place(std::size_t pages_wanted);

  std::recursive_mutex mutex_;
  char* arena_ = nullptr;
  LazyArray<Allocation*> page_table_;
  std::map<std::size_t, std::unique_ptr<Allocation>> allocations_;  // by offset in the arena
  std::size_t next_ = 0;
  std::size_t in_use_ = 0;
  int open_ = 0;
};

}  // namespace flash::simt
