// The functions that kernel code calls in the emulator. Everything in device/ is built on them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/export.hpp"
#include "emulator/headers/device/vector_types.hpp"

// The built-in variables: constants for a kernel, and each OS thread has a copy to which the
// scheduler writes the running thread's coordinates. initial-exec: one instruction instead of a
// call for each access.
#define FLASH_SIMT_BUILTIN(type, name)                         \
  extern __thread const type name __asm__("flash_simt_" #name) \
      __attribute__((tls_model("initial-exec"), visibility("default")))
FLASH_SIMT_BUILTIN(uint3, threadIdx);
FLASH_SIMT_BUILTIN(uint3, blockIdx);
FLASH_SIMT_BUILTIN(uint3, blockDim);
FLASH_SIMT_BUILTIN(uint3, gridDim);
#undef FLASH_SIMT_BUILTIN
inline constexpr int warpSize = 32;

namespace flash::simt {

// The place of a barrier or a warp operation in the source. As a default argument, Site::here() is
// the caller's place. (With braces around the two built-ins, g++ 12 gives the callee's place.)
struct Site {
  const char* file = nullptr;
  int line = 0;
  const char* function = nullptr;  // "kernel", of a template "kernel<16>"

  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                             const char* function = __builtin_FUNCTION()) {
    return {file, line, function};
  }
};

// The running thread's number in its block (x fastest), and its place in its warp.
FLASH_EXPORT unsigned thread_number();
inline unsigned lane_number() { return thread_number() % 32; }

// The start of the block's dynamic shared memory.
FLASH_EXPORT void* dynamic_shared_memory();

// Waits for all threads of the block, and returns the sum of their predicates.
FLASH_EXPORT int barrier(const char* name, Site site, int predicate = 0);

// Waits until each lane in `mask` that has not returned has called this with the same `mask`,
// `complete` and `name`, on any line. The last one calls `complete` once for all: slots[lane] is
// that lane's `slot`, nullptr for lanes that do not take part.
using Complete = void(void* const slots[32], std::uint32_t present);
struct WarpCall {
  const char* name;  // as in the source: "__shfl_xor_sync"
  Site site;
  std::uint32_t mask = ~0u;
  void* slot = nullptr;
  Complete* complete = nullptr;
  bool orders_memory = false;  // true for __syncwarp()
  bool whole_warp = false;     // matrix instructions: all 32 lanes, on one line
};
FLASH_EXPORT void flash_simt_warp_operation(const WarpCall& call);
inline void flash_simt_matrix_operation(const char* name, Site site, void* slot,
                                        Complete* complete) {
  flash_simt_warp_operation({name, site, ~0u, slot, complete, false, true});
}

// Ends the kernel with a finding: `reader` read a value from lane `source`, which takes no part.
[[noreturn]] FLASH_EXPORT void read_from_absent_lane(const char* name, Site site, int reader,
                                                     int source);

// Ends the kernel with a finding: no lanes form groups of `width`.
[[noreturn]] FLASH_EXPORT void wrong_width(const char* name, Site site, int width);

// Called before an atomic operation on `address`, from code at `pc`: counts and checks it, and at
// every 16th lets other threads run, so that a kernel can wait for a value to change. `compares`:
// it is an atomicCAS().
FLASH_EXPORT void flash_simt_before_atomic(const volatile void* address, std::size_t bytes,
                                           const void* pc, bool compares);
FLASH_EXPORT void nap(unsigned nanoseconds);  // __nanosleep()
FLASH_EXPORT void fence();                    // __threadfence()
[[noreturn]] FLASH_EXPORT void trap(Site site);

// Ends the kernel with a finding: `what` was called with an address that is not a multiple of
// `alignment`.
[[noreturn]] FLASH_EXPORT void misaligned(const char* what, Site site, const volatile void* address,
                                          std::size_t alignment);

// Ends the kernel with a finding unless these bytes are local variables of the running thread: the
// operands of `what` are registers.
FLASH_EXPORT void must_be_own(const char* what, Site site, const void* begin, std::size_t bytes);

// cp.async (common/cuda/async_copy.hpp): starts a copy of `bytes`, the first `valid` from `from`
// and the others zero; makes a group of the copies started; waits until at most `groups` groups are
// not finished.
FLASH_EXPORT void async_copy(void* to, const void* from, int bytes, int valid);
FLASH_EXPORT void async_commit();
FLASH_EXPORT void async_wait(int groups);

// To a number of 16 bits and back, by common/half.hpp: not instrumented here.
FLASH_EXPORT std::uint16_t bits_of_float16(double value, int exponent_bits);
FLASH_EXPORT float float_of_float16(std::uint16_t bits, int exponent_bits);

// Not instrumented, and not inlined where it would be.
#define FLASH_SIMT_UNCHECKED __attribute__((no_sanitize("thread"), noinline))

}  // namespace flash::simt
