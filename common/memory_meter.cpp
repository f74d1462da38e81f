// Implements memory_meter.hpp by replacing the global operator new and delete, and malloc and free
// where the C library leaves its own under another name.
#include "common/memory_meter.hpp"

#include <atomic>
#include <cerrno>
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

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
#define FLASH_METERS_MALLOC 1
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
// AddressSanitizer's own, where ./lab check --sanitize preloads it; otherwise null. The ones at the
// end of this file hide its malloc, and it calls them before it can tell the size of what it gave.
[[gnu::weak]] void* __interceptor_malloc(std::size_t);
[[gnu::weak]] void* __interceptor_calloc(std::size_t, std::size_t);
[[gnu::weak]] void* __interceptor_realloc(void*, std::size_t);
[[gnu::weak]] void* __interceptor_memalign(std::size_t, std::size_t);
[[gnu::weak]] void __interceptor_free(void*);
}
#endif

namespace flash::host_memory {
namespace {

std::atomic<std::size_t> bytes_in_use{0};
std::atomic<std::size_t> bytes_peak{0};
std::atomic<std::size_t> bytes_limit{std::numeric_limits<std::size_t>::max()};

// Whether malloc counts; otherwise operator new does.
bool meters_malloc() noexcept {
#ifdef FLASH_METERS_MALLOC
  return __interceptor_malloc == nullptr;
#else
  return false;
#endif
}

void* counted(void* memory) noexcept {
  if (memory == nullptr) return memory;
  const std::size_t bytes = FLASH_ALLOCATED_SIZE(memory),
                    now = bytes_in_use.fetch_add(bytes) + bytes;
  std::size_t peak_so_far = bytes_peak.load();
  while (now > peak_so_far && !bytes_peak.compare_exchange_weak(peak_so_far, now)) {
  }
  return memory;
}

void* no_longer_counted(void* memory) noexcept {
  if (memory != nullptr) bytes_in_use.fetch_sub(FLASH_ALLOCATED_SIZE(memory));
  return memory;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t limit = bytes_limit.load(std::memory_order_relaxed);
  if (bytes > limit || bytes_in_use.load(std::memory_order_relaxed) > limit - bytes)
    throw std::bad_alloc();
  if (bytes == 0) bytes = 1;
  // Not aligned_alloc, which takes multiples of the alignment only: AddressSanitizer would not see
  // the first accesses behind such a block.
  void* memory = nullptr;
  if (alignment <= alignof(std::max_align_t))
    memory = std::malloc(bytes);
  else if (posix_memalign(&memory, alignment, bytes) != 0)
    memory = nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  return meters_malloc() ? memory : counted(memory);
}

void release(void* memory) noexcept {
  if (!meters_malloc()) no_longer_counted(memory);
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

#ifdef FLASH_METERS_MALLOC
// Exported, for libraries that are loaded later as well: what PyTorch takes by posix_memalign() and
// gives back by free() would be subtracted, and never added.
#pragma GCC visibility push(default)
extern "C" {
using flash::host_memory::counted;
using flash::host_memory::meters_malloc;
using flash::host_memory::no_longer_counted;

void* malloc(std::size_t bytes) {
  return meters_malloc() ? counted(__libc_malloc(bytes)) : __interceptor_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  return meters_malloc() ? counted(__libc_calloc(count, bytes))
                         : __interceptor_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  if (!meters_malloc()) return __interceptor_realloc(memory, bytes);
  void* const moved = __libc_realloc(no_longer_counted(memory), bytes);
  if (moved == nullptr && bytes > 0) counted(memory);  // it stays where it was
  return counted(moved);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  return meters_malloc() ? counted(__libc_memalign(alignment, bytes))
                         : __interceptor_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  if (meters_malloc())
    __libc_free(no_longer_counted(memory));
  else
    __interceptor_free(memory);
}
}
#pragma GCC visibility pop
#endif
