// Implements device_memory.hpp.
#include "common/simt/device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace flash::simt {

template <>
LazyArray<Allocation*>::LazyArray(std::size_t count) : bytes_(count * sizeof(Allocation*)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<Allocation**>(memory);
}

DeviceMemory& DeviceMemory::instance() {
  static DeviceMemory* const memory = new DeviceMemory;  // never destroyed: static objects may still free in their destructors
  return *memory;
}

DeviceMemory::DeviceMemory() : page_table_(kArena / kPage) {
  void* memory = mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  arena_ = static_cast<char*>(memory);
}

// The offset of `bytes` of free address space, the next after the last given out.
std::size_t DeviceMemory::place(std::size_t bytes) {
  std::size_t offset = next_;
  bool wrapped = false;
  while (true) {
    if (offset + bytes > kArena) {
      if (wrapped) return kArena;
      wrapped = true;
      offset = 0;
    }
    // The allocation that begins last before offset + bytes is the only one that can be in the way.
    auto above = allocations_.lower_bound(offset + bytes);
    if (above == allocations_.begin()) return offset;
    const auto& [begin, allocation] = *--above;
    const std::size_t end = begin + allocation->page_bytes;
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (end + page <= offset) return offset;  // with the page behind it
    offset = end + page;
  }
}

void* DeviceMemory::allocate(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (bytes == 0 || bytes > kTotal - in_use_) return nullptr;
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t used = (bytes + kAlignment - 1) / kAlignment * kAlignment, mapped = (used + page - 1) / page * page;
  const std::size_t offset = place(mapped + page);  // with the page behind it
  if (offset == kArena || mprotect(arena_ + offset, mapped, PROT_READ | PROT_WRITE) != 0) return nullptr;

  auto allocation = std::make_unique<Allocation>();
  allocation->pages = arena_ + offset;
  allocation->page_bytes = mapped;
  allocation->begin = arena_ + offset + mapped - used;
  allocation->bytes = bytes;
  allocation->shadow = Shadow(bytes);
  std::memset(allocation->begin, 0xff, bytes);
  for (std::size_t i = 0; i < mapped / kPage; ++i) page_table_[offset / kPage + i] = allocation.get();
  if (open_ == 0) protect(*allocation, false);
  void* const begin = allocation->begin;
  allocations_.emplace(offset, std::move(allocation));
  next_ = offset + mapped + page;
  in_use_ += bytes;
  return begin;
}

bool DeviceMemory::free(void* memory) {
  const std::scoped_lock lock(mutex_);
  Allocation* const allocation = find(memory);
  if (allocation == nullptr || allocation->begin != memory) return false;
  const auto offset = static_cast<std::size_t>(allocation->pages - arena_);
  for (std::size_t i = 0; i < allocation->page_bytes / kPage; ++i) page_table_[offset / kPage + i] = nullptr;
  madvise(allocation->pages, allocation->page_bytes, MADV_DONTNEED);
  protect(*allocation, false);
  in_use_ -= allocation->bytes;
  allocations_.erase(offset);
  return true;
}

Allocation* DeviceMemory::nearest(const void* address) {
  const std::scoped_lock lock(mutex_);
  if (!contains(address) || allocations_.empty()) return nullptr;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(address) - arena_);
  const auto above = allocations_.upper_bound(offset);
  if (above == allocations_.begin()) return above->second.get();
  const auto below = std::prev(above);
  if (above == allocations_.end()) return below->second.get();
  return offset - (below->first + below->second->page_bytes) <= above->first - offset ? below->second.get() : above->second.get();
}

void DeviceMemory::protect(const Allocation& allocation, bool accessible) {
  if (mprotect(allocation.pages, allocation.page_bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) std::abort();
}

void DeviceMemory::open() {
  const std::scoped_lock lock(mutex_);
  if (open_++ > 0) return;
  for (const auto& [offset, allocation] : allocations_) protect(*allocation, true);
}

void DeviceMemory::close() {
  const std::scoped_lock lock(mutex_);
  if (--open_ > 0) return;
  for (const auto& [offset, allocation] : allocations_) protect(*allocation, false);
}

void DeviceMemory::reset_traffic() {
  const std::scoped_lock lock(mutex_);
  for (const auto& [offset, allocation] : allocations_) allocation->shadow.loaded = allocation->shadow.stored = 0;
}

}  // namespace flash::simt
