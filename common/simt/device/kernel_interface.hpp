// What kernel code calls: the thread's own coordinates, waiting, and the checks' hooks. Everything in device/ is written on it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/export.hpp"
#include "common/simt/device/vector_types.hpp"

// The built-in variables. Each OS thread has its own copy, and the scheduler writes the running thread's coordinates to it; to
// a kernel they are constants. initial-exec: one instruction instead of a call for each access.
#define FLASH_SIMT_BUILTIN(type, name) \
  extern __thread const type name __asm__("flash_simt_" #name) \
      __attribute__((tls_model("initial-exec"), visibility("default")))
FLASH_SIMT_BUILTIN(uint3, threadIdx);
FLASH_SIMT_BUILTIN(uint3, blockIdx);
FLASH_SIMT_BUILTIN(uint3, blockDim);
FLASH_SIMT_BUILTIN(uint3, gridDim);
#undef FLASH_SIMT_BUILTIN
inline constexpr int warpSize = 32;

namespace flash::simt {

// Where a barrier or a warp operation stands in the source. As a default argument, Site::here() is the caller's place. (Braces
// around the two built-ins would do the same in clang, and give the callee's place in g++ 12.)
struct Site {
  const char* file = nullptr;
  int line = 0;

  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

// The running thread's number in its block (x fastest), and its place in its warp.
FLASH_EXPORT unsigned thread_number();
inline unsigned lane_number() { return thread_number() % 32; }

// The start of the block's dynamic shared memory.
FLASH_EXPORT void* dynamic_shared_memory();

// Waits until all threads of the block are here. `predicate` is summed over the threads; each gets the sum.
FLASH_EXPORT int barrier(const char* name, Site site, int predicate = 0);

// Waits until each lane that `mask` names, and that has not returned, has called this with the same `mask`, `complete` and
// `site`. The last to come calls `complete` once for all: slots[lane] is what that lane handed in, nullptr for lanes not there.
struct WarpCall {
  const char* name;  // as in the source: "__shfl_xor_sync"
  Site site;
  std::uint32_t mask;
  void* slot;
  void (*complete)(void* const slots[32], std::uint32_t present);
  bool orders_memory = false;  // __syncwarp() does; a shuffle or a vote does not
  bool whole_warp = false;     // no lane may have returned: matrix instructions
};
FLASH_EXPORT void warp_operation(const WarpCall& call);

// Ends the kernel with a finding: `reader` read a value from lane `source`, which takes no part.
[[noreturn]] FLASH_EXPORT void read_from_absent_lane(const char* name, Site site, int reader, int source);

// Called before an atomic operation on `address`, from code at `pc`: counts and checks it, and now and then gives other threads a
// turn, so that a kernel may wait for a value to change.
FLASH_EXPORT void before_atomic(const volatile void* address, std::size_t bytes, const void* pc);
FLASH_EXPORT void nap();  // __nanosleep()
FLASH_EXPORT void fence();      // __threadfence()

// Ends the kernel because a wrapper of common/cuda was called in a way that the GPU does not allow.
[[noreturn]] FLASH_EXPORT void misaligned(const char* what, Site site, const volatile void* address, std::size_t alignment);

// cp.async (common/cuda/async_copy.hpp): starts a copy of `bytes`, of which the first `valid` come from `from` and the others are
// zero; makes a group of those started; waits until at most `groups` groups are under way.
FLASH_EXPORT void async_copy(void* to, const void* from, int bytes, int valid);
FLASH_EXPORT void async_commit();
FLASH_EXPORT void async_wait(int groups);

// Not instrumented, and not inlined where it would be.
#define FLASH_SIMT_UNCHECKED __attribute__((no_sanitize("thread"), noinline))

}  // namespace flash::simt
