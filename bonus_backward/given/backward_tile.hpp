// Given: what the kernels of the backward pass are made of. Which rows, scores and columns are
// whose, the tiles in shared memory, and the two products.
//
// A thread block owns kOwn rows of one side (keys for dK and dV, queries for dQ) and streams the
// rows of the other side past them in blocks of kStream. Inside the block a warp owns kRowsOfWarp
// of the own rows and all that is computed for them; kLanes neighbouring lanes share kRows of
// these. For each row a thread has kScores of the scores with a block of streamed rows, and
// kColumns columns of each gradient, all in registers.
//
//   own rows of a warp      group 0, group 1, ..., group 0, group 1, ...     kGroups groups of kLanes lanes, kRows rows each
//   streamed rows           lane 0, lane 1, ..., lane 0, lane 1, ...         kLanes lanes, kScores each
//
// Neighbours among rows belong to neighbours among threads: rows of kStride floats begin 4 banks
// apart, so that what eight of them read together, 16 bytes each, lies in all 32 banks.
#pragma once

#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/tile.hpp"

namespace flash::backward {

template <int HeadDim, int Own, int Stream, int Warps, int Rows>
struct Config {
  static constexpr int kHeadDim = HeadDim, kOwn = Own, kStream = Stream, kWarps = Warps,
                       kRows = Rows;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kRowsOfWarp = kOwn / kWarps;
  static constexpr int kGroups = kRowsOfWarp / kRows;  // of lanes, in a warp
  static constexpr int kLanes = kWarpSize / kGroups;
  static constexpr int kScores = kStream / kLanes;
  static constexpr int kColumns = kHeadDim / kLanes;

  static constexpr int kStride = kHeadDim + 4;            // of a tile of rows
  static constexpr int kWeightsStride = kRowsOfWarp + 4;  // of a warp's weights
  static constexpr int kOwnSize = kOwn * kStride, kStreamSize = kStream * kStride,
                       kWeightsSize = kStream * kWeightsStride;
  static constexpr std::size_t kSharedBytes =
      sizeof(float) * (2 * kOwnSize + 2 * kStreamSize + kWarps * kWeightsSize + 2 * kStream);

  // 8 warps at a time on a multiprocessor: up to 255 registers a thread.
  static constexpr int kBlocks = 8 / kWarps;

  static_assert(kGroups * kLanes == kWarpSize && 8 % kWarps == 0 && kHeadDim % 4 == 0);
  static_assert(kWarps * kGroups * kRows == kOwn && kLanes * kScores == kStream &&
                kLanes * kColumns == kHeadDim);
  static_assert(kRows % kVector<kRows> == 0 && kColumns % kVector<kColumns> == 0);
};

// A thread's place in its block, and what that makes its own.
template <class C>
struct Thread {
  int warp = threadIdx.x / kWarpSize, group = threadIdx.x % kWarpSize / C::kLanes,
      lane = threadIdx.x % C::kLanes;

  // Row r of this thread among the block's own rows, its score n among the streamed rows, its
  // column n.
  __device__ int row(int r) const { return warp * C::kRowsOfWarp + r * C::kGroups + group; }
  __device__ int streamed(int n) const { return n * C::kLanes + lane; }
  __device__ int column(int n) const { return place<C::kColumns, C::kLanes>(lane, n); }
};

// Shared memory: two tiles of own rows, two of streamed rows, a warp's own weights, and two numbers
// for each streamed row.
template <class C>
struct Tiles {
  float* const own[2];     // [kOwn][kStride]
  float* const stream[2];  // [kStream][kStride]
  float* const weights;    // [kStream][kWeightsStride]
  float* const lse;        // [kStream]
  float* const delta;      // [kStream]

  __device__ Tiles(float* shared, int warp)
      : own{shared, shared + C::kOwnSize},
        stream{shared + 2 * C::kOwnSize, shared + 2 * C::kOwnSize + C::kStreamSize},
        weights(stream[1] + C::kStreamSize + warp * C::kWeightsSize),
        lse(stream[1] + C::kStreamSize + C::kWarps * C::kWeightsSize),
        delta(lse + C::kStream) {}
};

// The scores of a thread, and its part of a gradient.
template <class C>
using Scores = float[C::kRows][C::kScores];
template <class C>
using Gradient = float[C::kRows][C::kColumns];

// ---- Exponents ----------------------------------------------------------------------------------

// What the exponent of P in base 2 subtracts. A row that weighs no key gets inf, and exp2(S - inf)
// = 0.
__device__ __forceinline__ float base_2(float lse) {
  return lse == -INFINITY ? INFINITY : lse * kLog2E;
}

// ---- The mask -----------------------------------------------------------------------------------

// Query i of the queries from i0 on sees key j of the keys from j0 on when j <= i + diagonal(): the
// rule of AttentionShape::visible_keys(), but for the end of the keys, in 32 bits, since inner
// loops ask it.
template <class C>
__device__ __forceinline__ int diagonal(bool causal, Index i0, Index j0) {
  return causal ? static_cast<int>(i0 - j0) : C::kOwn + C::kStream;
}

// ---- To shared memory ---------------------------------------------------------------------------

// tile[r * kStride + c] = factor * x(row0 + r, c) for kTileRows rows, and 0 outside of x. The
// thread block's work.
template <int kTileRows, class C, class T>
__device__ __forceinline__ void load_rows(float* tile, const Head<const T>& x, Index row0,
                                          float factor = 1) {
  load_tile<kTileRows, C::kHeadDim, C::kThreads>(
      x, row0, 0, [&](int r, int c, float value) { tile[r * C::kStride + c] = factor * value; });
}

// The weights of this warp's rows, for add_product(): weights[s][...] are those of streamed row s.
template <class C>
__device__ __forceinline__ void store_weights(float* weights, const Scores<C>& W,
                                              const Thread<C>& thread) {
  FLASH_UNROLL
  for (int n = 0; n < C::kScores; ++n) {
    float column[C::kRows];
    FLASH_UNROLL
    for (int r = 0; r < C::kRows; ++r) column[r] = W[r][n];
    write<C::kGroups>(weights + thread.streamed(n) * C::kWeightsStride, column, thread.group);
  }
}

// What this thread stored: it costs less to read it again than to keep it in registers meanwhile.
template <class C>
__device__ __forceinline__ void load_weights(Scores<C>& W, const float* weights,
                                             const Thread<C>& thread) {
  FLASH_UNROLL
  for (int n = 0; n < C::kScores; ++n) {
    float column[C::kRows];
    read<C::kGroups>(column, weights + thread.streamed(n) * C::kWeightsStride, thread.group);
    FLASH_UNROLL
    for (int r = 0; r < C::kRows; ++r) W[r][n] = column[r];
  }
}

// ---- The products -------------------------------------------------------------------------------

// S[r][n] += the dot product of this thread's own row r and its streamed row n, over all columns.
template <class C>
__device__ __forceinline__ void multiply(Scores<C>& S, const float* own, const float* stream,
                                         const Thread<C>& thread) {
  FLASH_UNROLL_BY(1)
  for (int c = 0; c < C::kHeadDim; c += 4) {
    Floats<4> a[C::kRows];
    FLASH_UNROLL
    for (int r = 0; r < C::kRows; ++r)
      a[r] = *reinterpret_cast<const Floats<4>*>(own + thread.row(r) * C::kStride + c);
    FLASH_UNROLL
    for (int n = 0; n < C::kScores; ++n) {
      const auto b =
          *reinterpret_cast<const Floats<4>*>(stream + thread.streamed(n) * C::kStride + c);
      FLASH_UNROLL
      for (int r = 0; r < C::kRows; ++r) {
        FLASH_UNROLL
        for (int i = 0; i < 4; ++i) S[r][n] += a[r].value[i] * b.value[i];
      }
    }
  }
}

// G[r][n] += weight(s, own row r) * stream(s, column n), summed over the streamed rows s. kMasked:
// only over those with sees(r, s): a pair that does not see each other must add nothing, not even 0
// * NaN.
template <bool kMasked, class C, class Sees>
__device__ __forceinline__ void add_product(Gradient<C>& G, const float* weights,
                                            const float* stream, const Thread<C>& thread,
                                            Sees sees) {
  FLASH_UNROLL_BY(4)
  for (int s = 0; s < C::kStream; ++s) {
    float W[C::kRows], x[C::kColumns];
    read<C::kGroups>(W, weights + s * C::kWeightsStride, thread.group);
    read<C::kLanes>(x, stream + s * C::kStride, thread.lane);
    FLASH_UNROLL
    for (int r = 0; r < C::kRows; ++r)
      if (!kMasked || sees(r, s)) {
        FLASH_UNROLL
        for (int n = 0; n < C::kColumns; ++n) G[r][n] += W[r] * x[n];
      }
  }
}

// ---- Back to device memory ----------------------------------------------------------------------

// x(row0 + row(r), column(n)) = factor * G[r][n], for the rows and columns that x has.
template <class C, class T>
__device__ __forceinline__ void store(const Gradient<C>& G, const Head<T>& x, Index row0,
                                      float factor, const Thread<C>& thread) {
  FLASH_UNROLL
  for (int r = 0; r < C::kRows; ++r) {
    const Index row = row0 + thread.row(r);
    if (row >= x.rows) continue;
    FLASH_UNROLL
    for (int n = 0; n < C::kColumns; ++n)
      if (thread.column(n) < x.columns) x(row, thread.column(n)) = from_float<T>(factor * G[r][n]);
  }
}

}  // namespace flash::backward
