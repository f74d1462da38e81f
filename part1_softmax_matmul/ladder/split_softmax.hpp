// The softmax of rung 4: which numbers a thread has of a tile, and their weights, split for wgmma.
#pragma once

#include "common/cuda/split.hpp"
#include "common/cuda/warp.hpp"

namespace flash::fused_split {

constexpr int kGroups = 2;             // warpgroups that compute, 64 rows each
constexpr int kRows = 64 * kGroups;    // of a tile of the output
constexpr int kSlab = 64, kSlabs = 4;  // columns that are multiplied at a time; of a tile
constexpr int kKeys = 64;              // of a step
constexpr int kXSize = kRows * kKeys;

// Weights are 2^(score - reference), where scores are in base 2. In the step that sets it, a row's
// reference is its maximum less 6, so that weights lie in [0, 2^6]. It stays as it is until a
// thread's 16 weights of a row exceed 2^14 together.
constexpr float kMost = 64, kHeadroom = 6, kMostSum = 16384;

// The same number, but not for the compiler: what follows from it is computed where it is needed,
// not once before the loop, and takes no register in between.
__device__ __forceinline__ unsigned unknown(unsigned x) {
  asm volatile("" : "+r"(x));
  return x;
}

// ---- Places -------------------------------------------------------------------------------------

// Thread t of a quad reads 8 neighbours among 32 keys of a row. 4 of them are its part of one
// product of 16 keys, the other 4 of the next product; there they are columns 2 t, 2 t + 1, 2 t + 8
// and 2 t + 9 of A. So V's rows are stored in that order.
struct RowsOfWeights {
  __device__ static constexpr int place(int row) {
    return row / 32 * 32 + row / 4 % 2 * 16 + row / 2 % 2 * 8 + row / 8 % 4 * 2 + row % 2;
  }
};

// Where 4 keys of a row stand in a stage of X, as TMA leaves them: in slabs of 32 keys, swizzled.
__device__ __forceinline__ unsigned place_of_four(unsigned row, unsigned four) {
  return four / 8 * (kXSize / 2) + row * 32 + (four % 8 ^ row % 8) * 4;
}

// A thread's row, and its number in the quad that shares it, from the place of its first four: so
// they need no registers of their own.
__device__ __forceinline__ unsigned row_of(unsigned first) { return first / 32; }
__device__ __forceinline__ unsigned quad_of(unsigned first) {
  return (first / 4 % 8 ^ row_of(first) % 8) / 2;
}

// ---- Weights ------------------------------------------------------------------------------------

// A thread's two rows: row 0 is row g of the warp's 16, row 1 row g + 8.
struct Rows {
  float O[kSlabs][32] = {};  // sum of weight * V, as the registers of wgmma
  float reference[2] = {-INFINITY, -INFINITY}, l[2] = {};
};

// A thread's scores of a step, then its weights, and their sums.
struct Scores {
  float x[2][kKeys / 4], sum[2];

  // Numbers 4 k to 4 k + 3 of both rows: keys of product k.
  __device__ __forceinline__ void load(const float* X, unsigned first, int k) {
    FLASH_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float4 four = *reinterpret_cast<const float4*>(X + (k % 2 == 0 ? first : first ^ 4) +
                                                           k / 2 * (kXSize / 2) + half * 8 * 32);
      float(&to)[kKeys / 4] = x[half];
      to[4 * k] = four.x, to[4 * k + 1] = four.y, to[4 * k + 2] = four.z, to[4 * k + 3] = four.w;
    }
  }
  // For a step with fewer than kKeys keys.
  __device__ __forceinline__ void mask(int t, int keys) {
    FLASH_UNROLL
    for (int half = 0; half < 2; ++half) FLASH_UNROLL
    for (int i = 0; i < kKeys / 4; ++i)
      if (i / 8 * 32 + 8 * t + i % 8 >= keys) x[half][i] = -INFINITY;
  }
  __device__ __forceinline__ void weigh(int k, const float (&reference)[2]) {
    FLASH_UNROLL
    for (int half = 0; half < 2; ++half) {
      float(&p)[kKeys / 4] = x[half];
      FLASH_UNROLL
      for (int i = 4 * k; i < 4 * k + 4; ++i)
        p[i] = exp2_approximate(fmaf(p[i], kLog2E, -reference[half]));
      const float four = (p[4 * k] + p[4 * k + 1]) + (p[4 * k + 2] + p[4 * k + 3]);
      sum[half] = k == 0 ? four : sum[half] + four;
    }
  }
  // Whether the weights are right: not where a row has no reference yet, nor after NaN.
  __device__ __forceinline__ bool fit() const {
    return !__any_sync(kAllLanes, !(sum[0] <= kMostSum) || !(sum[1] <= kMostSum));
  }
};

// The weights of a step, after new references for all rows.
__device__ __forceinline__ void weigh_anew(Scores& scores, Rows& rows, const float* X,
                                           unsigned first, int keys) {
  FLASH_UNROLL
  for (int k = 0; k < kKeys / 16; ++k) scores.load(X, first, k);
  if (keys < kKeys) scores.mask(static_cast<int>(quad_of(unknown(first))), keys);
  float used[2];
  FLASH_UNROLL
  for (int half = 0; half < 2; ++half) {
    float largest = -INFINITY;
    FLASH_UNROLL
    for (int i = 0; i < kKeys / 4; ++i) largest = fmaxf(largest, scores.x[half][i]);
    const float old = rows.reference[half],
                reference = fmaxf(old, warp_max<4>(largest) * kLog2E - kHeadroom);
    // -inf - -inf is NaN: as long as nothing was visible, measure from 0.
    used[half] = reference == -INFINITY ? 0 : reference;
    const float alpha = exp2f(old - used[half]);
    rows.reference[half] = reference;
    rows.l[half] *= alpha;
    FLASH_UNROLL
    for (int c = 0; c < kSlabs; ++c) FLASH_UNROLL
    for (int i = 0; i < 32; ++i)
      if (i / 2 % 2 == half) rows.O[c][i] *= alpha;
  }
  FLASH_UNROLL
  for (int k = 0; k < kKeys / 16; ++k) scores.weigh(k, used);
}

// The weights of 64 keys, in two planes, as the registers of wgmma's A.
struct Weights {
  std::uint32_t high[kKeys / 16][4], low[kKeys / 16][4];

  __device__ __forceinline__ void set(const Scores& scores) {
    FLASH_UNROLL
    for (int k = 0; k < kKeys / 16; ++k) FLASH_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float* const two = &scores.x[i % 2][4 * k + i / 2 * 2];
      split(two[0], two[1], high[k][i], low[k][i]);
    }
  }
};

}  // namespace flash::fused_split
