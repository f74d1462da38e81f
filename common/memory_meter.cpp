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
// AddressSanitizer's, where it was preloaded (./lab check --sanitize). Then it has to give all
// memory, with its red zones, and what malloc gives directly is not counted.
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

// Whether malloc and free count, and operator new has nothing to add.
bool malloc_counts() {
#ifdef FLASH_METERS_MALLOC
  return __interceptor_malloc == nullptr;
#else
  return false;
#endif
}

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
  return malloc_counts() ? memory : counted(memory);
}

void release(void* memory) noexcept {
  if (!malloc_counts()) no_longer_counted(memory);
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
extern "C" {
using flash::host_memory::counted;
using flash::host_memory::no_longer_counted;

void* malloc(std::size_t bytes) {
  return __interceptor_malloc ? __interceptor_malloc(bytes) : counted(__libc_malloc(bytes));
}
void* calloc(std::size_t count, std::size_t bytes) {
  return __interceptor_calloc ? __interceptor_calloc(count, bytes)
                              : counted(__libc_calloc(count, bytes));
}
void* realloc(void* memory, std::size_t bytes) {
  if (__interceptor_realloc) return __interceptor_realloc(memory, bytes);
  void* const moved = __libc_realloc(no_longer_counted(memory), bytes);
  if (moved == nullptr && bytes > 0) counted(memory);  // it stays where it was
  return counted(moved);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  return __interceptor_memalign ? __interceptor_memalign(alignment, bytes)
                                : counted(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  if (__interceptor_free)
    __interceptor_free(memory);
  else
    __libc_free(no_longer_counted(memory));
}
}
#endif
