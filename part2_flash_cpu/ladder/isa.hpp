// Kernels that are compiled once for each instruction set, and the choice among them at run time:
// the best set that the processor has, or the one in the environment's FLASH_ISA.
//
// A file N_name.isa.cpp ends its kernels with FLASH_KERNELS(name), where flash::FLASH_ISA has a
// constexpr function kernels<T>(). That defines name_kernels(), the kernels that run here. A rung
// may leave out the kernels of the pass that it does not enter.
//
// The kernels use no inline function of the standard library or of this project but those of
// common/cpu/simd.hpp: the linker may put the copy of another instruction set in its place (a test
// looks for such symbols). The code that enters the rung stands under #ifdef FLASH_BASELINE: it is
// compiled once, for every processor.
#pragma once

#include "part2_flash_cpu/ladder/per_isa/kernels.hpp"

namespace flash {

// 0: baseline, 1: avx2, 2: avx512. Looks at the processor and the environment once. Throws
// ArgumentError when FLASH_ISA is no instruction set of this build, and Unsupported when the
// processor does not have it.
int chosen_isa();

}  // namespace flash

#define FLASH_DEFINE_KERNELS(name)                                       \
  namespace flash::FLASH_ISA {                                           \
  extern const RungKernels name##_kernels;                               \
  const RungKernels name##_kernels{kernels<float>(), kernels<double>()}; \
  }

#ifdef FLASH_HAVE_AVX
#define FLASH_DECLARE_KERNELS(name)        \
  namespace flash::avx2 {                  \
  extern const RungKernels name##_kernels; \
  }                                        \
  namespace flash::avx512 {                \
  extern const RungKernels name##_kernels; \
  }
#define FLASH_EACH_ISA(what) &baseline::what, &avx2::what, &avx512::what
#else
#define FLASH_DECLARE_KERNELS(name)
#define FLASH_EACH_ISA(what) &baseline::what
#endif

#ifdef FLASH_BASELINE
#define FLASH_KERNELS(name)                                             \
  FLASH_DEFINE_KERNELS(name)                                            \
  FLASH_DECLARE_KERNELS(name)                                           \
  namespace flash {                                                     \
  const RungKernels& name##_kernels() {                                 \
    const RungKernels* const each[] = {FLASH_EACH_ISA(name##_kernels)}; \
    return *each[chosen_isa()];                                         \
  }                                                                     \
  }
#else
#define FLASH_KERNELS(name) FLASH_DEFINE_KERNELS(name)
#endif
