// What the compiler calls, with -fsanitize=thread, before each access to memory. The
// ThreadSanitizer runtime itself is not linked.
// __builtin_return_address identifies the access. Outside a checked kernel these functions do
// nothing, but for host code that reaches into the emulator.
#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulator/check/checker.hpp"
#include "emulator/run/device_memory.hpp"
#include "emulator/run/module.hpp"
#include "emulator/run/worker.hpp"

namespace {

using flash::simt::Checker;
using flash::simt::DeviceMemory;
using flash::simt::Module;
using flash::simt::module_of;

[[noreturn]] void refuse_host_code(const char* what) {
  std::fprintf(stderr, "the code of a .cu file %s\n", what);
  std::abort();
}

// Host code has nothing to look for in the emulator's variables, which hold what was found.
void check_host(const void* address) {
  static const Module& emulator = module_of(reinterpret_cast<const void*>(&refuse_host_code));
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  if (value >= emulator.begin && value < emulator.end)
    refuse_host_code("reaches into the emulator's memory");
}

// How many values a format prints; -1 where it may ask for more than to print them, as %n and the C
// library's own %Zn do.
int printed_values(const char* format) {
  int count = 0;
  while ((format = std::strchr(format, '%')) != nullptr) {
    for (++format; *format != '\0' && std::strchr("0123456789-+ #.*hlqjzt", *format); ++format)
      count += *format == '*';
    if (*format == '\0' || std::strchr("diouxXeEfFgGaAcsp%", *format) == nullptr) return -1;
    count += *format++ != '%';
  }
  return count;
}

inline void access(const void* address, std::size_t bytes, bool is_write, std::uintptr_t pc) {
  Checker* const checker = Checker::active();
  if (checker == nullptr) return check_host(address);
  checker->access(address, bytes, is_write, pc);
}

// Any number of bytes, in pieces that the shadow can look up at once.
void range(const void* address, std::size_t bytes, bool is_write, std::uintptr_t pc) {
  Checker* const checker = Checker::active();
  if (checker == nullptr) return check_host(address);
  checker->reaches(__builtin_frame_address(0), pc);
  const auto* begin = static_cast<const char*>(address);
  while (bytes > 0) {
    const std::size_t piece = bytes < 16 ? bytes : 16;
    checker->access(begin, piece, is_write, pc);
    begin += piece;
    bytes -= piece;
  }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

#define FLASH_ACCESS(name, bytes, is_write) \
  void name(void* address) { access(address, bytes, is_write, FLASH_HERE); }
#define FLASH_READ_AND_WRITE(prefix, bytes)                \
  FLASH_ACCESS(__tsan_##prefix##read##bytes, bytes, false) \
  FLASH_ACCESS(__tsan_##prefix##write##bytes, bytes, true)
#define FLASH_ACCESSES(bytes)            \
  FLASH_READ_AND_WRITE(, bytes)          \
  FLASH_READ_AND_WRITE(volatile_, bytes) \
  FLASH_READ_AND_WRITE(unaligned_, bytes)
FLASH_ACCESSES(1)
FLASH_ACCESSES(2)
FLASH_ACCESSES(4)
FLASH_ACCESSES(8)
FLASH_ACCESSES(16)

void __tsan_read_range(void* address, unsigned long bytes) {
  range(address, bytes, false, FLASH_HERE);
}
void __tsan_write_range(void* address, unsigned long bytes) {
  range(address, bytes, true, FLASH_HERE);
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
// A library that is compiled with the checks calls this when it is loaded.
void __tsan_init() { module_of(__builtin_return_address(0)).is_checked = true; }

// The checked libraries are linked with --wrap for these: functions that kernels may call, and that
// access memory.
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  range(from, bytes, false, FLASH_HERE);
  range(to, bytes, true, FLASH_HERE);
  return std::memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  range(from, bytes, false, FLASH_HERE);
  range(to, bytes, true, FLASH_HERE);
  return std::memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int value, std::size_t bytes) {
  range(to, bytes, true, FLASH_HERE);
  return std::memset(to, value, bytes);
}

#define FLASH_PUTS_INTEGER(T, name, Out)       \
  T __wrap_##name(T value, Out* out) {         \
    range(out, sizeof *out, true, FLASH_HERE); \
    return name(value, out);                   \
  }
FLASH_PUTS_INTEGER(double, modf, double)
FLASH_PUTS_INTEGER(float, modff, float)
FLASH_PUTS_INTEGER(double, frexp, int)
FLASH_PUTS_INTEGER(float, frexpf, int)
void __wrap_sincos(double value, double* sine, double* cosine) {
  range(sine, sizeof *sine, true, FLASH_HERE);
  range(cosine, sizeof *cosine, true, FLASH_HERE);
  sincos(value, sine, cosine);
}
void __wrap_sincosf(float value, float* sine, float* cosine) {
  range(sine, sizeof *sine, true, FLASH_HERE);
  range(cosine, sizeof *cosine, true, FLASH_HERE);
  sincosf(value, sine, cosine);
}
// In a kernel they give device memory, which all threads may access, and every launch until it is
// freed.
void* __wrap_malloc(std::size_t bytes) {
  return Checker::active() != nullptr ? DeviceMemory::instance().allocate(bytes)
                                      : std::malloc(bytes);
}
void* __wrap__Znwm(std::size_t bytes) {
  return Checker::active() != nullptr ? DeviceMemory::instance().allocate(bytes)
                                      : ::operator new(bytes);
}
void* __wrap__Znam(std::size_t bytes) { return __wrap__Znwm(bytes); }
void __wrap_free(void* memory) {
  if (!DeviceMemory::instance().free(memory)) std::free(memory);
}
#define FLASH_DELETE(name)                                                 \
  void __wrap_##name(void* memory) {                                       \
    if (!DeviceMemory::instance().free(memory)) ::operator delete(memory); \
  }
FLASH_DELETE(_ZdlPv)
FLASH_DELETE(_ZdaPv)
#undef FLASH_DELETE
void __wrap__ZdlPvm(void* memory, std::size_t) { __wrap__ZdlPv(memory); }
void __wrap__ZdaPvm(void* memory, std::size_t) { __wrap__ZdaPv(memory); }

int __wrap_printf(const char* format, ...) {
  const int count = printed_values(format);
  if (count < 0) refuse_host_code("calls printf with %n, or with what prints no value");
  std::va_list values;
  va_start(values, format);
  const int printed = std::vprintf(format, values);
  va_end(values);
  // A kernel's gets the number of its values, as CUDA's does: a length tells what it printed.
  return flash::simt::Worker::current() == nullptr ? printed : count;
}

// C++'s atomic operations, which local statics use in host code, are none of CUDA's: for a kernel
// each is an ordinary access. Kernels use CUDA's functions (device/atomics.hpp).
#define FLASH_ATOMIC(bits, T, operation, builtin)                \
  T __tsan_atomic##bits##_##operation(volatile T* a, T v, int) { \
    range(const_cast<T*>(a), sizeof v, true, FLASH_HERE);        \
    return __atomic_##builtin(a, v, __ATOMIC_SEQ_CST);           \
  }
#define FLASH_COMPARE_EXCHANGE(bits, T, strength)                                             \
  int __tsan_atomic##bits##_compare_exchange_##strength(volatile T* a, T* e, T v, int, int) { \
    range(const_cast<T*>(a), sizeof v, true, FLASH_HERE);                                     \
    range(e, sizeof v, true, FLASH_HERE);                                                     \
    return __atomic_compare_exchange_n(a, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);   \
  }
#define FLASH_ATOMICS(bits, T)                                \
  T __tsan_atomic##bits##_load(const volatile T* a, int) {    \
    range(const_cast<T*>(a), sizeof(T), false, FLASH_HERE);   \
    return __atomic_load_n(a, __ATOMIC_SEQ_CST);              \
  }                                                           \
  void __tsan_atomic##bits##_store(volatile T* a, T v, int) { \
    range(const_cast<T*>(a), sizeof v, true, FLASH_HERE);     \
    __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                 \
  }                                                           \
  FLASH_ATOMIC(bits, T, exchange, exchange_n)                 \
  FLASH_ATOMIC(bits, T, fetch_add, fetch_add)                 \
  FLASH_ATOMIC(bits, T, fetch_sub, fetch_sub)                 \
  FLASH_ATOMIC(bits, T, fetch_and, fetch_and)                 \
  FLASH_ATOMIC(bits, T, fetch_or, fetch_or)                   \
  FLASH_ATOMIC(bits, T, fetch_xor, fetch_xor)                 \
  FLASH_COMPARE_EXCHANGE(bits, T, strong)                     \
  FLASH_COMPARE_EXCHANGE(bits, T, weak)
FLASH_ATOMICS(8, std::uint8_t)
FLASH_ATOMICS(16, std::uint16_t)
FLASH_ATOMICS(32, std::uint32_t)
FLASH_ATOMICS(64, std::uint64_t)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
#pragma GCC visibility pop
