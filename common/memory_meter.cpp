// Implements memory_meter.hpp by replacing the global operator new and delete.
#include "common/memory_meter.hpp"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#ifdef __APPLE__
#include <malloc/malloc.h>
#define FLASH_ALLOCATED_SIZE malloc_size
#else
#include <malloc.h>
#define FLASH_ALLOCATED_SIZE malloc_usable_size
#endif

namespace flash::host_memory {
namespace {

std::atomic<std::size_t> bytes_in_use{0};
std::atomic<std::size_t> bytes_peak{0};
std::atomic<std::size_t> bytes_limit{std::numeric_limits<std::size_t>::max()};

void* allocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t limit = bytes_limit.load(std::memory_order_relaxed);
  if (bytes > limit || bytes_in_use.load(std::memory_order_relaxed) > limit - bytes)
    throw std::bad_alloc();
  if (bytes == 0) bytes = 1;
  // aligned_alloc takes multiples of the alignment only.
  void* memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  const std::size_t now =
      bytes_in_use.fetch_add(FLASH_ALLOCATED_SIZE(memory)) + FLASH_ALLOCATED_SIZE(memory);
  std::size_t peak_so_far = bytes_peak.load();
  while (now > peak_so_far && !bytes_peak.compare_exchange_weak(peak_so_far, now)) {
  }
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  bytes_in_use.fetch_sub(FLASH_ALLOCATED_SIZE(memory));
  std::free(memory);
}

}  // namespace

std::size_t in_use() noexcept { return bytes_in_use.load(); }
std::size_t peak() noexcept { return bytes_peak.load(); }
void reset_peak() noexcept { bytes_peak.store(bytes_in_use.load()); }
void set_limit(std::optional<std::size_t> bytes) noexcept {
  bytes_limit.store(bytes.value_or(std::numeric_limits<std::size_t>::max()));
}

}  // namespace flash::host_memory

// The array forms call these, by the standard's defaults. So do the nothrow ones, but not
// AddressSanitizer's.
void* operator new(std::size_t bytes) { return flash::host_memory::allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return flash::host_memory::allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return flash::host_memory::allocate(bytes, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { flash::host_memory::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { flash::host_memory::release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  flash::host_memory::release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  flash::host_memory::release(memory);
}
