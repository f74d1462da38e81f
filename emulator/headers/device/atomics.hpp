// Atomic operations on device and shared memory. They are real atomic operations of the processor,
// since blocks may run on several OS threads; and inlined, so that the place of the access is in
// the kernel. They return the old value, as in CUDA.
#pragma once

#include "emulator/headers/cuda_runtime_api.h"
#include "emulator/headers/device/kernel_interface.hpp"

namespace flash::simt {

// Replaces *address by next(old). Not instrumented: flash_simt_before_atomic() has told the checks.
template <bool COMPARES = false, class T, class Next>
FLASH_SIMT_UNCHECKED T flash_simt_atomic_update(T* address, Next next) {
  flash_simt_before_atomic(address, sizeof(T), __builtin_return_address(0), COMPARES);
  T old, wanted;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  do wanted = next(old);
  while (!__atomic_compare_exchange(address, &old, &wanted, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_RELAXED));
  return old;
}

}  // namespace flash::simt

#define FLASH_SIMT_ATOMIC(name, T, expression)                                             \
  __forceinline__ T name(T* address, T value) {                                            \
    return flash::simt::flash_simt_atomic_update(                                          \
        address, [value](T old) __attribute__((always_inline))->T { return expression; }); \
  }

#define FLASH_SIMT_ATOMIC_INTEGERS(name, expression) \
  FLASH_SIMT_ATOMIC(name, int, expression)           \
  FLASH_SIMT_ATOMIC(name, unsigned, expression)      \
  FLASH_SIMT_ATOMIC(name, unsigned long long, expression)
FLASH_SIMT_ATOMIC_INTEGERS(atomicAdd, old + value)
FLASH_SIMT_ATOMIC_INTEGERS(atomicExch, ((void)old, value))
FLASH_SIMT_ATOMIC_INTEGERS(atomicMin, value < old ? value : old)
FLASH_SIMT_ATOMIC_INTEGERS(atomicMax, old < value ? value : old)
FLASH_SIMT_ATOMIC_INTEGERS(atomicAnd, old& value)
FLASH_SIMT_ATOMIC_INTEGERS(atomicOr, old | value)
FLASH_SIMT_ATOMIC_INTEGERS(atomicXor, old ^ value)
FLASH_SIMT_ATOMIC(atomicMin, long long, value < old ? value : old)
FLASH_SIMT_ATOMIC(atomicMax, long long, old < value ? value : old)
FLASH_SIMT_ATOMIC(atomicAdd, float, old + value)
FLASH_SIMT_ATOMIC(atomicAdd, double, old + value)
FLASH_SIMT_ATOMIC(atomicExch, float, ((void)old, value))
FLASH_SIMT_ATOMIC(atomicSub, int, old - value)
FLASH_SIMT_ATOMIC(atomicSub, unsigned, old - value)
FLASH_SIMT_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
FLASH_SIMT_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
#undef FLASH_SIMT_ATOMIC_INTEGERS
#undef FLASH_SIMT_ATOMIC

#define FLASH_SIMT_CAS(T)                                                      \
  __forceinline__ T atomicCAS(T* address, T compare, T value) {                \
    return flash::simt::flash_simt_atomic_update<true>(                        \
        address, [ compare, value ](T old) __attribute__((always_inline))->T { \
          return old == compare ? value : old;                                 \
        });                                                                    \
  }
FLASH_SIMT_CAS(int)
FLASH_SIMT_CAS(unsigned)
FLASH_SIMT_CAS(unsigned long long)
FLASH_SIMT_CAS(unsigned short)
#undef FLASH_SIMT_CAS
