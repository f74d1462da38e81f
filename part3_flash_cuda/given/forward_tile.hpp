// Given: the parts of the forward kernel. Which thread has which queries, keys and columns, the
// tiles in shared memory, and what a thread keeps.
//
// A thread block computes kBlockQ queries and kHeadDim columns of the output of one head. It reads
// the keys that some of its queries see, in blocks of kBlockK.
//
// A warp owns kRowsOfWarp rows of S, P and O. No other warp reads what its lanes write to P_smem.
//
// kLanes neighbouring lanes, a group, share kRows rows. For each row a thread has kKeys scores,
// kColumns columns of O, m, and its own part of l, all in registers. Shuffles over the kLanes lanes
// find the row's maximum.
//
// Both products read two vectors from shared memory and multiply each value of one by each of the
// other: 8 x 8 in the largest tiles, 64 multiply-adds for 4 reads of 16 bytes. Q and K are
// transposed, so that the rows of a column are neighbours.
#pragma once

#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/tile.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"

namespace flash::forward {

inline constexpr int kRows = 8;  // rows of a thread

// A configuration, and what follows from it. Shared memory holds floats, whatever the tensors hold.
// Its rows are padded by 4 or 8 floats, so that the 32 lanes that copy floats, and the lanes that
// write P, use 32 different banks.
template <int HeadDim, int BlockQ, int BlockK, int Warps>
struct Config {
  static constexpr int kHeadDim = HeadDim, kBlockQ = BlockQ, kBlockK = BlockK, kWarps = Warps;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kRowsOfWarp = kBlockQ / kWarps;
  static constexpr int kGroups = kRowsOfWarp / kRows;  // of lanes, in a warp
  static constexpr int kLanes = kWarpSize / kGroups;
  static constexpr int kKeys = kBlockK / kLanes;
  static constexpr int kColumns = kHeadDim / kLanes;

  static constexpr int kQStride = kBlockQ + 4, kKStride = kBlockK + 4, kVStride = kHeadDim + 8,
                       kPStride = kRowsOfWarp + 4;
  static constexpr int kQSize = kHeadDim * kQStride, kKSize = kHeadDim * kKStride,
                       kVSize = kBlockK * kVStride;
  static constexpr int kPSize = kBlockK * kPStride;  // of a warp
  static constexpr std::size_t kSharedBytes =
      sizeof(float) * (kQSize + kKSize + kVSize + kWarps * kPSize);

  static constexpr FlashForwardConfig kName{kHeadDim, kBlockQ, kBlockK, kWarps};
  static_assert(kGroups * kLanes == kWarpSize && kKeys >= 1 && kColumns >= 1 && 8 % kWarps == 0);
};

// A thread's place in its block: its warp, its group in the warp, and its lane in the group. From
// these follow its rows, keys and columns.
template <class C>
struct Thread {
  int warp = threadIdx.x / kWarpSize, group = threadIdx.x % kWarpSize / C::kLanes,
      lane = threadIdx.x % C::kLanes;

  // Where its row r is among the queries of the thread block, its score n among the keys of a block
  // of keys, and its column n among the columns of the slice.
  __device__ int row(int r) const {
    return warp * C::kRowsOfWarp + place<kRows, C::kGroups>(group, r);
  }
  __device__ int key(int n) const { return place<C::kKeys, C::kLanes>(lane, n); }
  __device__ int column(int n) const { return place<C::kColumns, C::kLanes>(lane, n); }
};

// Shared memory.
template <class C>
struct Tiles {
  float* const Q_smem;  // [kHeadDim][kQStride]: transposed
  float* const K_smem;  // [kHeadDim][kKStride]: transposed
  float* const V_smem;  // [kBlockK][kVStride]
  float* const P_smem;  // [kBlockK][kPStride]: transposed, this warp's own

  __device__ Tiles(float* shared, int warp)
      : Q_smem(shared),
        K_smem(Q_smem + C::kQSize),
        V_smem(K_smem + C::kKSize),
        P_smem(V_smem + C::kVSize + warp * C::kPSize) {}
};

// What a thread keeps of its rows from the first key to the last.
template <class C>
struct Rows {
  float m[kRows];                    // the largest score so far
  float l[kRows] = {};               // this lane's part of the sum of exp2(S - m)
  float O[kRows][C::kColumns] = {};  // the sum of exp2(S - m) V

  __device__ Rows() {
    FLASH_UNROLL
    for (int r = 0; r < kRows; ++r) m[r] = -INFINITY;
  }
};

template <class C>
using Scores = float[kRows][C::kKeys];

// ---- To shared memory ---------------------------------------------------------------------------

// Rounds P to T and writes it to shared memory. Score n of a lane goes to row n * kLanes + lane:
// then the lanes of a row write to different banks.
template <class T, class C>
__device__ __forceinline__ void store_P(const Tiles<C>& tiles, const Scores<C>& S,
                                        const Thread<C>& thread) {
  FLASH_UNROLL
  for (int n = 0; n < C::kKeys; ++n) {
    float P[kRows];
    FLASH_UNROLL
    for (int r = 0; r < kRows; ++r) P[r] = to_float(from_float<T>(S[r][n]));
    write<C::kGroups>(tiles.P_smem + (n * C::kLanes + thread.lane) * C::kPStride, P, thread.group);
  }
}

}  // namespace flash::forward
