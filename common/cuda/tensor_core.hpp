// The warp's own matrix instructions: ldmatrix, which loads fragments from shared memory, and
// mma.sync, D = A B + D on tensor cores (Ampere and later). All 32 lanes call together; each holds
// a part of every matrix. With g = lane / 4 and t = lane % 4:
//
//   mma_m16n8k16: A (16, 16) and B (16, 8) of half or bfloat16, two numbers a register, the first
//   in its low half; D (16, 8) of float32
//     a[0]         row g, columns 2t and 2t + 1   a[1]         the same columns of row g + 8
//     a[2]         row g, columns 2t + 8 and 2t + 9a[3]         the same columns of row g + 8
//     b[0]         column g, rows 2t and 2t + 1   b[1]         column g, rows 2t + 8, 2t + 9
//     d[0], d[1]   row g, columns 2t and 2t + 1   d[2], d[3]   the same columns of row g + 8
//
//   mma_m16n8k8: A (16, 8) and B (8, 8) of tf32 (float32, with 10 bits of fraction); D as above
//     a[0]         row g, column t                a[1]         row g + 8, column t
//     a[2]         row g, column t + 4            a[3]         row g + 8, column t + 4
//     b[0]         column g, row t                b[1]         column g, row t + 4
// Source: PTX ISA, "Matrix fragments for mma.m16n8k16" and "...m16n8k8", "ldmatrix".
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/cuda/warp.hpp"

namespace flash {

#ifdef FLASH_SIMT
using namespace simt::ptx;
#else

// Loads 4 matrices of 8 x 8 elements of 16 bits from shared memory. `row` is the address of a row
// of 16 bytes, a multiple of 16: lanes 0 to 7 give the rows of the first matrix, 8 to 15 those of
// the second, and so on. A lane gets elements 2t and 2t + 1 of row g of each matrix; with
// TRANSPOSE, of column g.
template <bool TRANSPOSE = false>
__device__ __forceinline__ void ldmatrix(std::uint32_t (&r)[4], const void* row) {
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (TRANSPOSE)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}

// The reverse: lane l's register i holds elements 2t and 2t + 1 of row g of matrix i, with
// TRANSPOSE of column g, and `row` is where lane l's row goes. Hopper.
template <bool TRANSPOSE = false>
__device__ __forceinline__ void stmatrix(void* row, const std::uint32_t (&r)[4]) {
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (TRANSPOSE)
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(shared),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(shared),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

// compiled, so that a build for Turing has the rest
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define FLASH_MMA(shape_and_types) __trap()
#else
#define FLASH_MMA(shape_and_types)                                                  \
  asm volatile("mma.sync.aligned." shape_and_types                                  \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                     \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#endif

// D += A B with float32 accumulators. The products are exact. Each element of D and its 16 products
// are one sum, which is cut off (emulator/headers/device/tensor_sum.hpp says where, for Hopper).
__device__ __forceinline__ void mma_m16n8k16_half(float (&d)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
  FLASH_MMA("m16n8k16.row.col.f32.f16.f16.f32");
}
__device__ __forceinline__ void mma_m16n8k16_bfloat16(float (&d)[4], const std::uint32_t (&a)[4],
                                                      const std::uint32_t (&b)[2]) {
  FLASH_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
}
// a and b hold float32 bits; tensor cores ignore the lowest 13 of them.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]) {
  FLASH_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
}
#undef FLASH_MMA

#endif

// Of 8 x 8 elements of 16 bits a lane has 2t and 2t + 1 of row g; returns those of column g.
__device__ __forceinline__ std::uint32_t transpose_8x8(std::uint32_t x) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, g = lane / 4, t = lane % 4;
  const std::uint32_t first = __shfl_sync(kAllLanes, x, 8 * t + g / 2),
                      second = __shfl_sync(kAllLanes, x, 8 * t + 4 + g / 2);
  return __byte_perm(first, second, g % 2 == 0 ? 0x5410 : 0x7632);
}

}  // namespace flash
