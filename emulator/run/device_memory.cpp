#include "emulator/run/device_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace flash::simt {

DeviceMemory& DeviceMemory::instance() {
  static DeviceMemory* const memory =
      new DeviceMemory;  // never destroyed: static objects may still free in their destructors
  return *memory;
}

DeviceMemory::DeviceMemory() : arena_(reserve(kArena, PROT_NONE)), page_table_(kArena / kPage) {}

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

void* DeviceMemory::allocate(std::size_t bytes, bool is_managed) {
  const std::scoped_lock lock(mutex_);
  if (bytes == 0 || bytes > kTotal - in_use_) return nullptr;
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t used = (bytes + kAlignment - 1) / kAlignment * kAlignment,
                    mapped = (used + page - 1) / page * page;
  const std::size_t start = place(mapped + page);  // with the page behind it
  if (start == kArena || mprotect(arena_ + start, mapped, PROT_READ | PROT_WRITE) != 0)
    return nullptr;

  auto allocation = std::make_unique<Allocation>();
  allocation->pages = arena_ + start;
  allocation->page_bytes = mapped;
  allocation->begin = arena_ + start + mapped - used;
  allocation->bytes = bytes;
  allocation->shadow = Shadow(bytes);
  std::memset(allocation->begin, 0xff, bytes);
  allocation->is_managed = is_managed;
  if (is_managed) allocation->shadow.initialized.insert(0, bytes);  // the host writes unseen
  for (std::size_t i = 0; i < mapped / kPage; ++i)
    page_table_[start / kPage + i] = allocation.get();
  if (open_ == 0) protect(*allocation, false);
  void* const begin = allocation->begin;
  allocations_.emplace(start, std::move(allocation));
  next_ = start + mapped + page;
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
  return begin;
}

bool DeviceMemory::free(void* memory) {
  const std::scoped_lock lock(mutex_);
  Allocation* const allocation = find(memory);
  if (allocation == nullptr || allocation->begin != memory) return false;
  const std::size_t begin = offset(allocation->pages);
  for (std::size_t i = 0; i < allocation->page_bytes / kPage; ++i)
    page_table_[begin / kPage + i] = nullptr;
  madvise(allocation->pages, allocation->page_bytes, MADV_DONTNEED);
  allocation->is_managed = false;
  protect(*allocation, false);
  in_use_ -= allocation->bytes;
  allocations_.erase(begin);
  return true;
}

Allocation* DeviceMemory::nearest(const void* address) {
  const std::scoped_lock lock(mutex_);
  if (!contains(address) || allocations_.empty()) return nullptr;
  const auto above = allocations_.upper_bound(offset(address));
  if (above == allocations_.begin()) return above->second.get();
  const auto below = std::prev(above);
  if (above == allocations_.end()) return below->second.get();
  const std::size_t at = offset(address);
  return (at - below->first - below->second->page_bytes <= above->first - at ? below : above)
      ->second.get();
}

std::string DeviceMemory::beside(const void* address) {
  const std::scoped_lock lock(mutex_);
  const std::size_t at = offset(address);
  const auto above = allocations_.upper_bound(at);
  std::string text;
  if (above != allocations_.begin())
    if (const Allocation& below = *std::prev(above)->second; !below.name.empty())
      text = std::to_string(below.offset(address) - below.bytes) +
             " bytes behind the end of the tensor " + below.name;
  if (above != allocations_.end() && !above->second->name.empty())
    text += (text.empty() ? "" : " and ") + std::to_string(offset(above->second->begin) - at) +
            " bytes before the tensor " + above->second->name;
  return text;
}

void DeviceMemory::protect(const Allocation& allocation, bool accessible) {
  accessible = accessible || allocation.is_managed;
  if (mprotect(allocation.pages, allocation.page_bytes,
               accessible ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    std::abort();
}

void DeviceMemory::change_users(int by) {
  const std::scoped_lock lock(mutex_);
  const bool was_open = open_ > 0, is_open = (open_ += by) > 0;
  if (was_open == is_open) return;
  for (const auto& [offset, allocation] : allocations_) protect(*allocation, is_open);
}

void DeviceMemory::reset_traffic() {
  const std::scoped_lock lock(mutex_);
  for (const auto& [offset, allocation] : allocations_)
    allocation->shadow.traffic = {}, allocation->shadow.loaded_before = 0;
}

void DeviceMemory::end_block(bool is_first_of_launch) {
  for (const auto& [offset, allocation] : allocations_) {
    Shadow& s = allocation->shadow;
    const std::uint64_t loaded = s.traffic.loaded_bytes - s.loaded_before;
    s.loaded_before = s.traffic.loaded_bytes;
    if (is_first_of_launch) s.loaded_by_busiest = 0;
    if (loaded <= s.loaded_by_busiest) continue;
    s.traffic.loaded_by_busiest += loaded - s.loaded_by_busiest;
    s.loaded_by_busiest = loaded;
  }
}

}  // namespace flash::simt
