// wgmma: D (64, N) = A (64, 16) B (16, N) or D += A B on the tensor cores by a warpgroup, 128
// threads that call together (Hopper). B, and A where it is not in registers, are read from shared
// memory through descriptors. The product goes on while the threads do something else:
//
//   wgmma_fence();     // before the first one, and after any access to the registers of D or A
//   for (k ...) wgmma<N, T>(d, a, b, true);
//   wgmma_commit();    // makes one group of all wgmma since the last commit
//   wgmma_wait<1>();   // waits until at most 1 group is under way
//
// From wgmma() to the wait nobody may touch d, A's registers or the tiles. If threads wrote a tile,
// they call fence_proxy_async() and then meet at a barrier. If TMA loaded it, wait at its Barrier.
//
// Warp w and lane l of the warpgroup, g = l / 4, t = l % 4, hold of D: d[4 i + j] = row 16 w + g,
// column 8 i + 2 t + j, for j = 0, 1, and d[4 i + 2 + j] the same of row g + 8. The registers of A
// are those of mma_m16n8k16 (tensor_core.hpp), with rows 16 w to 16 w + 15.
//
// Tiles are those of TMA (tma.hpp): slabs of 64 columns of 16 bits, a row 128 bytes, swizzled, the
// next slab behind all rows of the one before.
// Source: PTX ISA, "Asynchronous warpgroup level matrix instructions".
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/cuda/shared_address.hpp"
#include "common/half.hpp"

namespace flash {

#ifdef FLASH_SIMT
using namespace simt::ptx;
#else

// Where an operand's 16 columns or rows (k) begin, and how they lie there.
struct MatrixDescriptor {
  std::uint64_t bits;
};

// bits 0-13 address / 16, 16-29 `leading` / 16, 32-45 `stride` / 16, 62-63 swizzle (1: 128 bytes).
__device__ __forceinline__ MatrixDescriptor matrix_descriptor(const void* tile, int leading,
                                                              int stride) {
  const auto encode = [](std::uint32_t bytes) {
    return static_cast<std::uint64_t>((bytes & 0x3ffff) >> 4);
  };
  return {encode(shared_address(tile)) | encode(leading) << 16 | encode(stride) << 32 | 1ull << 62};
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

template <int N>
struct WgmmaShape;

// i0 to i6 number the operands behind D. Lists of operands come in parentheses.
#define FLASH_WGMMA_LIST(...) __VA_ARGS__
#define FLASH_WGMMA_ASM(n, types, i_accumulate, a_and_b, immediates, inputs, registers, ...) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i_accumulate                            \
               ", 0;\n"                                                                      \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." types " {" registers        \
               "}, " a_and_b ", p, 1, 1, " immediates ";\n}\n"                               \
               : __VA_ARGS__                                                                 \
               : FLASH_WGMMA_LIST inputs)
#define FLASH_WGMMA_BY_TYPE(n, ...)             \
  if constexpr (std::is_same_v<T, Half>)        \
    FLASH_WGMMA_ASM(n, "f16.f16", __VA_ARGS__); \
  else                                          \
    FLASH_WGMMA_ASM(n, "bf16.bf16", __VA_ARGS__);
#define FLASH_WGMMA_SHAPE(n, i0, i1, i2, i3, i4, i5, i6, registers, ...)                     \
  template <>                                                                                \
  struct WgmmaShape<n> {                                                                     \
    template <class T, bool kTransposeB>                                                     \
    static __device__ __forceinline__ void multiply(float (&d)[n / 2], MatrixDescriptor a,   \
                                                    MatrixDescriptor b, bool accumulate) {   \
      FLASH_WGMMA_BY_TYPE(                                                                   \
          n, i2, "%" #i0 ", %" #i1, "0, %" #i3,                                              \
          ("l"(a.bits), "l"(b.bits), "r"(static_cast<int>(accumulate)), "n"(kTransposeB)),   \
          registers, __VA_ARGS__)                                                            \
    }                                                                                        \
    template <class T, bool kTransposeB>                                                     \
    static __device__ __forceinline__ void multiply(float (&d)[n / 2],                       \
                                                    const std::uint32_t (&a)[4],             \
                                                    MatrixDescriptor b, bool accumulate) {   \
      FLASH_WGMMA_BY_TYPE(n, i5, "{%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 "}, %" #i4, "%" #i6, \
                          ("r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits),          \
                           "r"(static_cast<int>(accumulate)), "n"(kTransposeB)),             \
                          registers, __VA_ARGS__)                                            \
    }                                                                                        \
  };
#include "common/cuda/wgmma_shapes.inc"
#undef FLASH_WGMMA_SHAPE
#undef FLASH_WGMMA_BY_TYPE
#undef FLASH_WGMMA_ASM
#undef FLASH_WGMMA_LIST

// D = A B, or with `accumulate` D += A B. N is a multiple of 16, at most 256. A is a descriptor, or
// 4 registers of two numbers each. A row of B's tile is a column of B, as K's is for Q K^T. With
// kTransposeB it is a row of B, as V's is for P V.
template <int N, class T, bool kTransposeB = false, class A>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], const A& a, MatrixDescriptor b,
                                      bool accumulate) {
  WgmmaShape<N>::template multiply<T, kTransposeB>(d, a, b, accumulate);
}

#endif

// A descriptor `bytes` further on. The address is in its lower half; the upper half stays a
// constant.
__device__ __forceinline__ MatrixDescriptor operator+(MatrixDescriptor descriptor, int bytes) {
  const auto lower = static_cast<std::uint32_t>(descriptor.bits) + (bytes >> 4);
  return {descriptor.bits >> 32 << 32 | lower};
}

}  // namespace flash
