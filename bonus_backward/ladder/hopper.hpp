// What the rungs on wgmma and TMA share (Hopper): tiles that TMA loads and wgmma reads, the
// products of 64 rows a warpgroup, what becomes of the scores, and how the gradients leave.
//
// A tile of R rows is stored in slabs of 64 columns, R x 128 bytes each, one behind the other; a
// box of TMA is a slab. They begin at multiples of 1024 bytes.
//
// A warpgroup's product is 64 rows, 16 a warp. S and dP are transposed in most rungs: their rows
// are keys, their columns queries, and what a thread has of P^T and dS^T is what it has to give
// to dV = P^T dO and dK = dS^T Q.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "bonus_backward/ladder/workspace.hpp"
#include "common/cuda/shared_address.hpp"
#include "common/cuda/tensor_core.hpp"
#include "common/cuda/tma.hpp"
#include "common/cuda/warpgroup.hpp"
#include "common/cuda/wgmma.hpp"
#include "part3_flash_cuda/ladder/fragments.hpp"

namespace flash::gradients {

inline std::string why_not_on_hopper(const AttentionProblem& problem) {
  const std::string why = why_not_hopper();
  return why.empty() ? why_not(problem) : why;
}

// ---- Tiles --------------------------------------------------------------------------------------

// The address of columns 8 c to 8 c + 7 of a row in a tile of kRows rows.
template <int kRows, class T>
__device__ __forceinline__ T* chunk_of(T* tile, int row, int c) {
  return tile + (c / 8 * kRows + row) * 64 + (c % 8 ^ row % 8) * 8;
}

// Starts the copy of rows row0 to row0 + kRows - 1 of a head. Their bytes were announced.
template <int kRows, int kHeadDim, class T>
__device__ __forceinline__ void load_tile(T* tile, const TensorMap& map, Barrier& barrier, int row0,
                                          const BlockOfHead& block) {
  FLASH_UNROLL
  for (int column = 0; column < kHeadDim; column += 64)
    tma_load(tile + column * kRows, map, barrier, column, row0, block.h, block.b);
}

// lse and delta of the rows of queries as TMA sees them: rows of 32 numbers, those of all heads
// behind one another. A box has those of kBlockQ queries, and is a "head" (lse 0, delta 1).
inline TensorMap map_of_rows(const Workspace& work, int block_q) {
  const Index rows = work.heads * work.rows / 32;
  return device::tensor_map(work.lse, BoxElement::kFloat32, {1, 2, rows, 32},
                            {2 * rows * 32, rows * 32, 32, 1}, block_q / 32);
}
inline constexpr int kRowNumbers = 256;  // floats that a box may take: up to 1024 bytes

// Where in such a box a lane finds the two numbers of queries 8 i + 2 t and the next one, with
// t = lane % 4.
struct RowPlace {
  int even, odd;  // in the box's rows 0 and 2, 1 and 3: the swizzle
  __device__ __forceinline__ explicit RowPlace(unsigned lane)
      : even(static_cast<int>(lane % 4 * 2)), odd(even ^ 4) {}
  __device__ __forceinline__ float2 operator()(const float* box, int i) const {
    const int row = i / 4, chunk = 2 * (i % 4) ^ (row & 2);
    return *reinterpret_cast<const float2*>(box + row * 32 + chunk * 4 + (row % 2 ? odd : even));
  }
};

// A warp tells that it has done something with shared memory; `lane` is the thread's.
__device__ __forceinline__ void tell(Barrier& barrier, unsigned lane) {
  __syncwarp();  // no race without it in 6_wgmma_one_pass: it tells what wgmma_wait() has ended
  if (lane == 0) arrive(barrier);
}

// ---- Blocks of keys whose groups have different work (rungs 5 and 9) ----------------------------

// "full" waits for copies or stores, "empty" for all warps that read.
struct KeyBarriers {
  Barrier K_full, V_full, Q_full[2], dO_full[2], Q_empty[2], dO_empty[2], P_full, P_empty, dS_full,
      dS_empty;

  __device__ __forceinline__ void init_all() {
    for (Barrier* barrier : {&K_full, &V_full, &Q_full[0], &Q_full[1], &dO_full[0], &dO_full[1]})
      init(*barrier, 1);
    for (Barrier* barrier : {&P_full, &P_empty, &dS_full, &dS_empty}) init(*barrier, 4);
    for (Barrier* barrier : {&Q_empty[0], &Q_empty[1], &dO_empty[0], &dO_empty[1]})
      init(*barrier, 8);
    fence_barrier_init();
  }
};

// ---- Products -----------------------------------------------------------------------------------

// An operand whose rows are rows of A or columns of B: 16 of its columns (k) are 32 bytes.
template <class T>
__device__ __forceinline__ MatrixDescriptor by_rows(const T* tile) {
  return matrix_descriptor(tile, 16, 1024);
}
// A B whose rows (k) are the rows of a tile of kRows: 16 of them are 2048 bytes, the next 64
// columns a slab further on.
template <int kRows, class T>
__device__ __forceinline__ MatrixDescriptor by_columns(const T* tile) {
  return matrix_descriptor(tile, kRows * 128, 1024);
}

// Starts D = A B^T, a group of wgmma: 64 rows of a tile of kRowsA by all kRowsB rows of another.
template <int kRowsA, int kRowsB, int kHeadDim, class T>
__device__ __forceinline__ void start_scores(float (&D)[kRowsB / 2], MatrixDescriptor A,
                                             MatrixDescriptor B) {
  wgmma_fence();
  FLASH_UNROLL
  for (int k = 0; k < kHeadDim / 16; ++k)
    wgmma<kRowsB, T>(D, A + (k / 4 * kRowsA * 128 + k % 4 * 32),
                     B + (k / 4 * kRowsB * 128 + k % 4 * 32), k > 0);
  wgmma_commit();
}

// A's registers for kDepth columns.
template <int kDepth>
using Packed = std::uint32_t[kDepth / 16][4];

// Starts D += A B with A from registers, a group of wgmma; B's rows are the kDepth rows of a tile.
template <int kDepth, int kColumns, class T>
__device__ __forceinline__ void start_gradient(float (&D)[kColumns / 2], const Packed<kDepth>& A,
                                               MatrixDescriptor B) {
  wgmma_fence();
  FLASH_UNROLL
  for (int k = 0; k < kDepth / 16; ++k) wgmma<kColumns, T, true>(D, A[k], B + k * 2048, true);
  wgmma_commit();
}

// D of one product as A of the next one, in 16 bits.
template <class T, int kDepth>
__device__ __forceinline__ void pack_scores(Packed<kDepth>& packed, const float (&D)[kDepth / 2]) {
  FLASH_UNROLL
  for (int k = 0; k < kDepth / 16; ++k) FLASH_UNROLL
  for (int i = 0; i < 4; ++i) packed[k][i] = pack<T>(D[8 * k + 2 * i], D[8 * k + 2 * i + 1]);
}

// ---- The mask -----------------------------------------------------------------------------------

// Which weights are 0: those of keys behind the last one, whose scores of 0 may be far above their
// row's others, and with a mask those of queries before the key.
// The 64 keys of a block's group number kGroup, and kQueries queries a step.
template <int kQueries, int kGroup = 0>
class Mask {
 public:
  __device__ __forceinline__ Mask(int keys_left, bool causal, int warp, unsigned lane)
      : is_ragged_(keys_left < 64 * kGroup + 64), causal_(causal) {
    FLASH_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int key = 64 * kGroup + 16 * warp + static_cast<int>(lane / 4) + 8 * r;
      keys_[r] = (key < keys_left ? key : 1 << 30) - 2 * static_cast<int>(lane % 4);
    }
  }

  // `ahead`: how many keys the step's first query is behind the block's first key.
  __device__ __forceinline__ void apply(float (&P)[kQueries / 2], int ahead) const {
    if (!causal_) ahead = 64 * kGroup + 64;
    if (!is_ragged_ && ahead >= 64 * kGroup + 63) return;
    FLASH_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int first_query = keys_[r] - ahead;
      FLASH_UNROLL
      for (int i = 0; i < kQueries / 4; ++i)
        if (i / 2 * 8 + i % 2 < first_query) P[i / 2 * 4 + 2 * r + i % 2] = 0;
    }
  }

 private:
  bool is_ragged_, causal_;
  int keys_[2];  // of the thread's rows, less the column of its first query
};

// ---- Gradients to memory ------------------------------------------------------------------------

// Writes the warp's 16 rows of D, times `factor`, over rows first_row to first_row + 15 of a tile
// of kRows rows that nobody reads any more, and starts their copy to `map`'s tensor: the tile's
// first number goes to (b, h, row0, column0).
template <int kRows, int kColumns, class T>
__device__ __forceinline__ void send_tile(const TensorMap& map, T* tile,
                                          const float (&D)[kColumns / 2], float factor,
                                          int first_row, unsigned lane, int row0, int column0,
                                          int h, int b) {
  FLASH_UNROLL
  for (int c = 0; c < kColumns / 8; c += 2) {
    std::uint32_t four[4];
    FLASH_UNROLL
    for (int j = 0; j < 4; ++j)
      four[j] = pack<T>(D[4 * c + 2 * j] * factor, D[4 * c + 2 * j + 1] * factor);
    stmatrix(chunk_of<kRows>(tile, first_row + static_cast<int>(lane % 16),
                             c + static_cast<int>(lane / 16)),
             four);
  }
  fence_proxy_async();
  __syncwarp();
  if (lane == 0) {
    FLASH_UNROLL
    for (int column = 0; column < kColumns; column += 64)
      tma_store(map, tile + (column / 64 * kRows + first_row) * 64, column0 + column,
                row0 + first_row, h, b);
    tma_commit();
  }
}

// The same of a gradient of a block's rows.
template <int kRows, int kHeadDim, class T>
__device__ __forceinline__ void send_gradient(const TensorMap& map, T* tile,
                                              const float (&D)[kHeadDim / 2], float factor,
                                              int first_row, unsigned lane,
                                              const BlockOfHead& block) {
  send_tile<kRows, kHeadDim>(map, tile, D, factor, first_row, lane, block.first, 0, block.h,
                             block.b);
}

}  // namespace flash::gradients
