// ldmatrix, stmatrix and mma.sync (common/cuda/tensor_core.hpp) on the emulator. The lanes have the
// elements that PTX documents, so that a mistake in the layout shows here as on a GPU.
#pragma once

#include <cstdint>

#include "emulator/headers/cuda_runtime_api.h"  // __forceinline__
#include "emulator/headers/device/kernel_interface.hpp"
#include "emulator/headers/device/tensor_sum.hpp"

namespace flash::simt {

// ---- ldmatrix and stmatrix ----------------------------------------------------------------------

struct MatrixRows {
  std::uint16_t row[8];  // what this lane's address holds
  std::uint32_t result[4];
};

template <bool TRANSPOSE>
FLASH_SIMT_UNCHECKED void deal_out_rows(void* const slots[32], std::uint32_t) {
  for (int lane = 0; lane < 32; ++lane) {
    auto* const mine = static_cast<MatrixRows*>(slots[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      const auto element = [&](int row, int column) __attribute__((always_inline)) {
        return static_cast<const MatrixRows*>(slots[8 * i + row])->row[column];
      };
      const std::uint32_t first = TRANSPOSE ? element(2 * t, g) : element(g, 2 * t),
                          second = TRANSPOSE ? element(2 * t + 1, g) : element(g, 2 * t + 1);
      mine->result[i] = first | second << 16;
    }
  }
}

// The reverse: row[] is what this lane's address gets, result[] what the lane holds.
template <bool TRANSPOSE>
FLASH_SIMT_UNCHECKED void collect_rows(void* const slots[32], std::uint32_t) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 2; ++half) {
        const int g = lane / 4, n = 2 * (lane % 4) + half;
        static_cast<MatrixRows*>(slots[8 * i + (TRANSPOSE ? n : g)])->row[TRANSPOSE ? g : n] =
            static_cast<std::uint16_t>(static_cast<const MatrixRows*>(slots[lane])->result[i] >>
                                       16 * half);
      }
}

// ---- mma.sync -----------------------------------------------------------------------------------

template <int kExponentBits>  // 5: half; 8: bfloat16
struct PairOf16Bits {
  static constexpr int kPerRegister = 2;
  FLASH_SIMT_UNCHECKED static float value(std::uint32_t bits, int i) {
    return float_of_float16(static_cast<std::uint16_t>(bits >> 16 * i), kExponentBits);
  }
};
struct Tf32 {
  static constexpr int kPerRegister = 1;
  FLASH_SIMT_UNCHECKED static float value(std::uint32_t bits, int) {
    return __builtin_bit_cast(float, bits & ~0x1fffu);  // the rest is ignored
  }
};

struct Fragments {
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

template <class Element>
FLASH_SIMT_UNCHECKED void flash_simt_multiply_fragments(void* const slots[32], std::uint32_t) {
  // No code of a kernel's own type runs unchecked.
  static_assert(__is_same(Element, Tf32) || __is_same(Element, PairOf16Bits<5>) ||
                    __is_same(Element, PairOf16Bits<8>),
                "tensor cores multiply half, bfloat16 and tf32");
  constexpr int kPer = Element::kPerRegister, kDepth = 8 * kPer;
  float A[16][kDepth], B[kDepth][8], D[16][8];
  const auto element_of_d = [&D](int lane, int n) __attribute__((always_inline))->float& {
    return D[lane / 4 + 8 * (n / 2)][2 * (lane % 4) + n % 2];
  };
  for (int lane = 0; lane < 32; ++lane) {
    const auto& part = *static_cast<const Fragments*>(slots[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < kPer; ++i) {
      for (int n = 0; n < 4; ++n)
        A[g + 8 * (n % 2)][kPer * t + i + 4 * kPer * (n / 2)] = Element::value(part.a[n], i);
      for (int n = 0; n < 2; ++n) B[kPer * t + i + 4 * kPer * n][g] = Element::value(part.b[n], i);
    }
    for (int n = 0; n < 4; ++n) element_of_d(lane, n) = part.d[n];
  }
  add_products(D[0], A[0], B[0], 16, 8, kDepth);
  for (int lane = 0; lane < 32; ++lane)
    for (int n = 0; n < 4; ++n)
      static_cast<const Fragments*>(slots[lane])->d[n] = element_of_d(lane, n);
}

template <class Element>
void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Site site) {
  must_be_own("mma.sync", site, d, sizeof d);
  must_be_own("mma.sync", site, a, sizeof a);
  must_be_own("mma.sync", site, b, sizeof b);
  Fragments slot{d, a, b};
  flash_simt_matrix_operation(Element::kPerRegister == 2 ? "mma.sync m16n8k16" : "mma.sync m16n8k8",
                              site, &slot, flash_simt_multiply_fragments<Element>);
}

}  // namespace flash::simt

namespace flash::simt::ptx {

template <bool TRANSPOSE = false>
__forceinline__ void ldmatrix(std::uint32_t (&r)[4], const void* row, Site site = Site::here()) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) misaligned("ldmatrix", site, row, 16);
  const uint4 words = *static_cast<const uint4*>(row);  // in the kernel's code: the checks see it
  MatrixRows slot{};
  __builtin_memcpy(slot.row, &words, sizeof words);
  flash_simt_matrix_operation("ldmatrix", site, &slot, deal_out_rows<TRANSPOSE>);
  for (int i = 0; i < 4; ++i) r[i] = slot.result[i];
}

template <bool TRANSPOSE = false>
__forceinline__ void stmatrix(void* row, const std::uint32_t (&r)[4], Site site = Site::here()) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) misaligned("stmatrix", site, row, 16);
  MatrixRows slot{};
  for (int i = 0; i < 4; ++i) slot.result[i] = r[i];
  flash_simt_matrix_operation("stmatrix", site, &slot, collect_rows<TRANSPOSE>);
  uint4 words;
  __builtin_memcpy(&words, slot.row, sizeof words);
  *static_cast<uint4*>(row) = words;  // in the kernel's code: the checks see it
}

inline void mma_m16n8k16_half(float (&d)[4], const std::uint32_t (&a)[4],
                              const std::uint32_t (&b)[2], Site site = Site::here()) {
  multiply<PairOf16Bits<5>>(d, a, b, site);
}
inline void mma_m16n8k16_bfloat16(float (&d)[4], const std::uint32_t (&a)[4],
                                  const std::uint32_t (&b)[2], Site site = Site::here()) {
  multiply<PairOf16Bits<8>>(d, a, b, site);
}
inline void mma_m16n8k8_tf32(float (&d)[4], const std::uint32_t (&a)[4],
                             const std::uint32_t (&b)[2], Site site = Site::here()) {
  multiply<Tf32>(d, a, b, site);
}

}  // namespace flash::simt::ptx
