// Emulated device memory. New allocations are filled with 0xff. Each ends (up to 255 bytes of
// alignment) at a guard page, and its own pages can only be accessed while a kernel or a copy runs:
// host code that follows a device pointer faults, as with a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "emulator/run/shadow.hpp"

namespace flash::simt {

struct Allocation {
  char* begin = nullptr;
  std::size_t bytes = 0;
  char* pages = nullptr;  // what is mapped for it, the page behind it not included
  std::size_t page_bytes = 0;
  Shadow shadow;
  bool is_managed = false;  // host code may access it at any time
  std::string name;         // of the tensor in it, "" where nobody said
  const char* first_element = nullptr;

  std::size_t offset(const void* address) const {
    return static_cast<std::size_t>(static_cast<const char*>(address) - begin);
  }
  // Whether all of [memory, memory + count) is part of it.
  bool holds(const void* memory, std::size_t count) const {
    return memory >= begin && offset(memory) <= bytes && count <= bytes - offset(memory);
  }
};

class DeviceMemory {
 public:
  static DeviceMemory& instance();

  // nullptr when there is no room. 0 bytes give nullptr.
  void* allocate(std::size_t bytes, bool is_managed = false);
  // False when `memory` is not the start of an allocation.
  bool free(void* memory);

  // The allocation whose pages `address` lies in, or nullptr. Lock-free: called for each access of
  // a checked kernel.
  Allocation* find(const void* address) const {
    return contains(address) ? page_table_[offset(address) / kPage] : nullptr;
  }
  bool contains(const void* address) const { return offset(address) < kArena; }
  // The allocation that ends or begins nearest to `address`, for messages.
  Allocation* nearest(const void* address);
  // "8 bytes behind the end of the tensor q and 248 bytes before the tensor k", of those that have
  // a name; "" where neither neighbour has one.
  std::string beside(const void* address);

  // While one of these exists, host code, which runs kernels and copies, can access device memory.
  class Open {
   public:
    Open() { instance().change_users(1); }
    ~Open() { instance().change_users(-1); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;
  };

  void change_users(int by);

  std::pair<const void*, std::size_t> arena() const { return {arena_, kArena}; }
  std::size_t in_use() const { return in_use_; }
  std::size_t peak() const { return peak_; }
  void reset_peak() { peak_ = in_use_; }
  void reset_traffic();
  // Of a checked launch, whose blocks run one after the other: counts what the block has loaded.
  void end_block(bool is_first_of_launch);
  void reuse_addresses() { next_ = 0; }

  static constexpr std::size_t kTotal = std::size_t{8} << 30;  // what the emulated device has
  static constexpr std::size_t kAlignment = 256;

 private:
  // Addresses are reused as late as possible, so that a pointer to freed memory stays invalid for
  // long.
  static constexpr std::size_t kArena = std::size_t{64} << 30;
  static constexpr std::size_t kPage = 4096;

  DeviceMemory();
  std::uintptr_t offset(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(arena_);
  }
  void protect(const Allocation& allocation, bool accessible);
  std::size_t place(std::size_t pages_wanted);

  std::recursive_mutex mutex_;
  char* arena_ = nullptr;
  LazyArray<Allocation*> page_table_;
  std::map<std::size_t, std::unique_ptr<Allocation>> allocations_;  // by offset in the arena
  std::size_t next_ = 0;
  std::size_t in_use_ = 0, peak_ = 0;
  int open_ = 0;
};

}  // namespace flash::simt
