// The functions that the compiler calls before each access to memory in code compiled with -fsanitize=thread. The instrumentation
// is the compiler's, the meaning is ours: nothing of the ThreadSanitizer runtime is linked. __builtin_return_address names the
// access. Outside of a checked kernel they do nothing.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/simt/checker.hpp"

namespace {

using flash::simt::Checker;

// `bytes` of any number, in pieces that the shadow can look up at once.
void range(const void* address, std::size_t bytes, bool is_write, const void* pc) {
  Checker* const checker = Checker::active();
  if (checker == nullptr) return;
  const auto* begin = static_cast<const char*>(address);
  while (bytes > 0) {
    const std::size_t piece = bytes < 16 ? bytes : 16;
    checker->access(begin, piece, is_write, false, pc);
    begin += piece;
    bytes -= piece;
  }
}

}  // namespace

#define FLASH_HERE __builtin_return_address(0)
#define FLASH_VISIBLE __attribute__((visibility("default")))

extern "C" {

#define FLASH_ACCESS(name, bytes, is_write, aligned)                                                      \
  FLASH_VISIBLE void name(void* address) {                                                                \
    if (Checker* const checker = Checker::active())                                                       \
      checker->access(address, bytes, is_write, aligned, FLASH_HERE);                                     \
  }
#define FLASH_ACCESSES(bytes)                                               \
  FLASH_ACCESS(__tsan_read##bytes, bytes, false, true)                      \
  FLASH_ACCESS(__tsan_write##bytes, bytes, true, true)                      \
  FLASH_ACCESS(__tsan_volatile_read##bytes, bytes, false, true)             \
  FLASH_ACCESS(__tsan_volatile_write##bytes, bytes, true, true)             \
  FLASH_ACCESS(__tsan_unaligned_read##bytes, bytes, false, false)           \
  FLASH_ACCESS(__tsan_unaligned_write##bytes, bytes, true, false)           \
  FLASH_ACCESS(__tsan_unaligned_volatile_read##bytes, bytes, false, false)  \
  FLASH_ACCESS(__tsan_unaligned_volatile_write##bytes, bytes, true, false)
FLASH_ACCESSES(1)
FLASH_ACCESSES(2)
FLASH_ACCESSES(4)
FLASH_ACCESSES(8)
FLASH_ACCESSES(16)

FLASH_VISIBLE void __tsan_read_range(void* address, unsigned long bytes) { range(address, bytes, false, FLASH_HERE); }
FLASH_VISIBLE void __tsan_write_range(void* address, unsigned long bytes) { range(address, bytes, true, FLASH_HERE); }
FLASH_VISIBLE void __tsan_vptr_update(void**, void*) {}
FLASH_VISIBLE void __tsan_vptr_read(void**) {}
FLASH_VISIBLE void __tsan_init() {}
FLASH_VISIBLE void __tsan_func_entry(void*) {}
FLASH_VISIBLE void __tsan_func_exit() {}

// The checked libraries are linked with --wrap for these: what the compiler did not turn into plain accesses.
FLASH_VISIBLE void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  range(from, bytes, false, FLASH_HERE);
  range(to, bytes, true, FLASH_HERE);
  return std::memcpy(to, from, bytes);
}
FLASH_VISIBLE void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  range(from, bytes, false, FLASH_HERE);
  range(to, bytes, true, FLASH_HERE);
  return std::memmove(to, from, bytes);
}
FLASH_VISIBLE void* __wrap_memset(void* to, int value, std::size_t bytes) {
  range(to, bytes, true, FLASH_HERE);
  return std::memset(to, value, bytes);
}

// Host code in a .cu file may use std::atomic and local statics; kernels use CUDA's functions (device/atomics.hpp).
#define FLASH_ATOMICS(bits, T)                                                                                                \
  FLASH_VISIBLE T __tsan_atomic##bits##_load(const volatile T* a, int) { return __atomic_load_n(a, __ATOMIC_SEQ_CST); }       \
  FLASH_VISIBLE void __tsan_atomic##bits##_store(volatile T* a, T v, int) { __atomic_store_n(a, v, __ATOMIC_SEQ_CST); }       \
  FLASH_VISIBLE T __tsan_atomic##bits##_exchange(volatile T* a, T v, int) { return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST); } \
  FLASH_VISIBLE T __tsan_atomic##bits##_fetch_add(volatile T* a, T v, int) { return __atomic_fetch_add(a, v, __ATOMIC_SEQ_CST); } \
  FLASH_VISIBLE T __tsan_atomic##bits##_fetch_sub(volatile T* a, T v, int) { return __atomic_fetch_sub(a, v, __ATOMIC_SEQ_CST); } \
  FLASH_VISIBLE T __tsan_atomic##bits##_fetch_and(volatile T* a, T v, int) { return __atomic_fetch_and(a, v, __ATOMIC_SEQ_CST); } \
  FLASH_VISIBLE T __tsan_atomic##bits##_fetch_or(volatile T* a, T v, int) { return __atomic_fetch_or(a, v, __ATOMIC_SEQ_CST); }   \
  FLASH_VISIBLE T __tsan_atomic##bits##_fetch_xor(volatile T* a, T v, int) { return __atomic_fetch_xor(a, v, __ATOMIC_SEQ_CST); } \
  FLASH_VISIBLE int __tsan_atomic##bits##_compare_exchange_strong(volatile T* a, T* e, T v, int, int) {                       \
    return __atomic_compare_exchange_n(a, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                   \
  }                                                                                                                           \
  FLASH_VISIBLE int __tsan_atomic##bits##_compare_exchange_weak(volatile T* a, T* e, T v, int, int) {                         \
    return __atomic_compare_exchange_n(a, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                   \
  }
FLASH_ATOMICS(8, std::uint8_t)
FLASH_ATOMICS(16, std::uint16_t)
FLASH_ATOMICS(32, std::uint32_t)
FLASH_ATOMICS(64, std::uint64_t)
FLASH_VISIBLE void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
FLASH_VISIBLE void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
