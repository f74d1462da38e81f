// What the rungs on mma.sync share: who computes what in a step, and the products on fragments.
//
// A thread block has kOwn rows of one side (keys, for dK and dV) and takes kStreamed rows of the
// other side a step. kShare warps have the same kRowsOfWarp own rows. In S and dP, which have a row
// for each own row, they divide the streamed rows. In the gradients of the own rows they divide the
// columns, so that two gradients of a head of 128 still fit into a thread's registers. What a warp
// then needs of its partners' P and dS it reads from shared memory.
//
// A warp takes up to 32 streamed rows at a time, which takes 64 registers for S and dP.
#pragma once

#include <algorithm>

#include "bonus_backward/ladder/workspace.hpp"
#include "common/cuda/tensor_core.hpp"
#include "common/cuda/tile.hpp"
#include "part3_flash_cuda/ladder/fragments.hpp"

namespace flash::gradients {

using mma::copy_chunks;
using mma::exchange;
using mma::kChunk;
using mma::multiply_add;

// kBlocks thread blocks have to fit on a multiprocessor, which limits a thread's registers.
template <int HeadDim, int Own, int Streamed, int Warps, int Share, int Blocks>
struct Config {
  static constexpr int kHeadDim = HeadDim, kOwn = Own, kStreamed = Streamed, kWarps = Warps,
                       kShare = Share, kBlocks = Blocks;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kRowsOfWarp = kOwn * kShare / kWarps, kTiles = kRowsOfWarp / 16;
  static constexpr int kStreamedOfWarp = kStreamed / kShare;
  static constexpr int kWide = kStreamedOfWarp < 32 ? kStreamedOfWarp : 32;  // at a time
  static constexpr int kColumns = kHeadDim / kShare;
  static constexpr int kOwnSize = kOwn * kHeadDim, kStreamedSize = kStreamed * kHeadDim,
                       kWeightsSize = kOwn * kStreamed;
  static constexpr int kWeights = kShare > 1 ? 2 : 1;  // of a step: dS, and P for the partners
  // Steps of 16 columns of V dO^T: the more, the faster (heads of 64: 4 %), until ptxas spills.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static constexpr int kUnroll = 4;
#else
  static constexpr int kUnroll = 2;
#endif
  // 32 rows of the streamed side's gradient are a warp's, and these columns.
  static constexpr int kAcross = kWarps / (kStreamed / 32), kColumnsAcross = kHeadDim / kAcross;

  static_assert(kTiles * 16 * kWarps == kOwn * kShare && kWarps % kShare == 0);
  static_assert(kStreamedOfWarp % kWide == 0 && kWide % 16 == 0 && kColumns % 32 == 0);
  static_assert(kStreamed % 32 == 0 && kColumnsAcross % 16 == 0);
  static_assert(kOwn % (kThreads * kChunk / kHeadDim) == 0 &&
                kStreamed % (kThreads * kChunk / kHeadDim) == 0);
};

// A matrix of 16-bit numbers in shared memory. The 8 rows of a column of chunks, which ldmatrix
// reads together, lie in 8 different groups of 4 banks.
template <class T, int kColumns>
struct Tile {
  T* data;

  __device__ __forceinline__ T* chunk(unsigned row, unsigned c) const {
    constexpr unsigned kChunks = kColumns / kChunk, kRowsOfLine = kChunks < 8 ? 8 / kChunks : 1,
                       kPlaces = kChunks < 8 ? kChunks : 8;
    return data + row * kColumns + (c ^ (row / kRowsOfLine % kPlaces)) * kChunk;
  }
};

// Where a lane is: its row g and its column 2t in a fragment, and its warp's first own row, first
// streamed row and first column of the own gradients.
template <class C>
struct Lane {
  unsigned warp, lane;
  int g, t2, part, row0, streamed0, column0;

  __device__ __forceinline__ Lane()
      : warp(threadIdx.x / kWarpSize),
        lane(threadIdx.x % kWarpSize),
        g(threadIdx.x % kWarpSize / 4),
        t2(threadIdx.x % 4 * 2),
        part(warp % C::kShare),
        row0(warp / C::kShare * C::kRowsOfWarp),
        streamed0(part * C::kStreamedOfWarp),
        column0(part * C::kColumns) {}
};

// Element i of fragment [tile][n]: row 16 tile + g + 8 (i / 2), column 8 n + 2t + i % 2.
template <class C>
using Scores = float[C::kTiles][C::kWide / 8][4];
template <class C>
using Gradient = float[C::kTiles][C::kColumns / 8][4];
// Scores in 16 bits, as the left factor of a product over the streamed rows, 16 at a time.
template <class C>
using Weights = std::uint32_t[C::kTiles][C::kWide / 16][4];

// ---- Tiles --------------------------------------------------------------------------------------

// What a step of streamed queries has in shared memory. P and dS are transposed: a row for each own
// key. P is there only where warps share keys.
template <class C, class T>
struct Step {
  Tile<T, C::kHeadDim> Q, dO;
  Tile<T, C::kStreamed> P, dS;
  float *lse, *delta;
};

// Where they come from.
template <class T>
struct Queries {
  Head<const T> q, d_out;
  const float *lse, *delta;

  __device__ __forceinline__ Queries(const AttentionBackward<T>& pass, const Workspace& work,
                                     const BlockOfHead& block)
      : q(pass.q, block.b, block.h),
        d_out(pass.d_out, block.b, block.h),
        lse(work.lse + block.head * work.rows),
        delta(work.delta + block.head * work.rows) {}
};

// Begins to copy the queries from i0 on.
template <class C, class T>
__device__ __forceinline__ void copy_queries(const Step<C, T>& step, const Queries<T>& queries,
                                             int i0) {
  copy_chunks<C, C::kStreamed>(step.Q, queries.q, i0);
  copy_chunks<C, C::kStreamed>(step.dO, queries.d_out, i0);
  const int i = threadIdx.x % C::kStreamed * 4;
  if (threadIdx.x < C::kStreamed / 4)
    cp_async_16(step.lse + i, queries.lse + i0 + i);
  else if (threadIdx.x < C::kStreamed / 2)
    cp_async_16(step.delta + i - C::kStreamed, queries.delta + i0 + i - C::kStreamed);
}

// ---- Products -----------------------------------------------------------------------------------

// S = A B^T: the warp's own rows, and kWide streamed rows from `streamed` on.
template <int kUnroll, class C, class T>
__device__ __forceinline__ void multiply(Scores<C>& S, const Tile<T, C::kHeadDim>& A,
                                         const Tile<T, C::kHeadDim>& B, int streamed,
                                         const Lane<C>& me) {
  FLASH_UNROLL
  for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
  for (int n = 0; n < C::kWide / 8; ++n) FLASH_UNROLL
  for (int i = 0; i < 4; ++i) S[tile][n][i] = 0;

  FLASH_UNROLL_BY(kUnroll)
  for (int k = 0; k < C::kHeadDim / 16; ++k) {
    std::uint32_t a[C::kTiles][4];
    FLASH_UNROLL
    for (int tile = 0; tile < C::kTiles; ++tile)
      ldmatrix(a[tile], A.chunk(me.row0 + 16 * tile + me.lane % 16, 2 * k + me.lane / 16));
    FLASH_UNROLL
    for (int n = 0; n < C::kWide / 8; n += 2) {
      std::uint32_t b[4];
      ldmatrix(b,
               B.chunk(streamed + 8 * n + me.lane / 16 * 8 + me.lane % 8, 2 * k + me.lane / 8 % 2));
      const std::uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
      FLASH_UNROLL
      for (int tile = 0; tile < C::kTiles; ++tile) {
        multiply_add<T>(S[tile][n], a[tile], first);
        multiply_add<T>(S[tile][n + 1], a[tile], second);
      }
    }
  }
}

// D += W B for 16 rows of B from `row` on and kN columns from `column` on.
template <int kTiles, int kN, int kWidth, class T>
__device__ __forceinline__ void add_product(float (&D)[kTiles][kN / 8][4],
                                            const std::uint32_t (&W)[kTiles][4],
                                            const Tile<T, kWidth>& B, int row, int column,
                                            unsigned lane) {
  FLASH_UNROLL
  for (int n = 0; n < kN / 8; n += 2) {
    std::uint32_t b[4];
    ldmatrix<true>(b, B.chunk(row + lane % 16, column / 8 + n + lane / 16));
    const std::uint32_t first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
    FLASH_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      multiply_add<T>(D[tile][n], W[tile], first);
      multiply_add<T>(D[tile][n + 1], W[tile], second);
    }
  }
}

template <class C, class T>
__device__ __forceinline__ void round(Weights<C>& W, const Scores<C>& S) {
  FLASH_UNROLL
  for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
  for (int k = 0; k < C::kWide / 16; ++k) FLASH_UNROLL
  for (int i = 0; i < 4; ++i)
    W[tile][k][i] =
        pack<T>(S[tile][2 * k + i / 2][i % 2 * 2], S[tile][2 * k + i / 2][i % 2 * 2 + 1]);
}

// own += W B, for the kWide rows of B that W was computed from.
template <class C, class T>
__device__ __forceinline__ void add_own(Gradient<C>& own, const Weights<C>& W,
                                        const Tile<T, C::kHeadDim>& B, int streamed,
                                        const Lane<C>& me) {
  FLASH_UNROLL
  for (int k = 0; k < C::kWide / 16; ++k) {
    std::uint32_t a[C::kTiles][4];
    FLASH_UNROLL
    for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
    for (int i = 0; i < 4; ++i) a[tile][i] = W[tile][k][i];
    add_product<C::kTiles, C::kColumns>(own, a, B, streamed + 16 * k, me.column0, me.lane);
  }
}

// Weights for the partners, and for the streamed side's gradient.
template <class C, class T>
__device__ __forceinline__ void store_weights(const Tile<T, C::kStreamed>& tile,
                                              const Weights<C>& W, int streamed,
                                              const Lane<C>& me) {
  FLASH_UNROLL
  for (int m = 0; m < C::kTiles; ++m) FLASH_UNROLL
  for (int k = 0; k < C::kWide / 16; ++k) FLASH_UNROLL
  for (int i = 0; i < 4; ++i)
    *reinterpret_cast<std::uint32_t*>(
        tile.chunk(me.row0 + 16 * m + me.g + i % 2 * 8, streamed / 8 + 2 * k + i / 2) + me.t2) =
        W[m][k][i];
}

// own += W B for the rows of B that the partners had.
template <class C, class T>
__device__ __forceinline__ void add_partners(Gradient<C>& own, const Tile<T, C::kStreamed>& W,
                                             const Tile<T, C::kHeadDim>& B, const Lane<C>& me) {
  FLASH_UNROLL
  for (int other = 1; other < C::kShare; ++other) {
    const int first = (me.part + other) % C::kShare * C::kStreamedOfWarp;
    FLASH_UNROLL
    for (int k = 0; k < C::kStreamedOfWarp; k += 16) {
      std::uint32_t a[C::kTiles][4];
      FLASH_UNROLL
      for (int tile = 0; tile < C::kTiles; ++tile)
        ldmatrix(a[tile],
                 W.chunk(me.row0 + 16 * tile + me.lane % 16, (first + k) / 8 + me.lane / 16));
      add_product<C::kTiles, C::kColumns>(own, a, B, first + k, me.column0, me.lane);
    }
  }
}

// ---- P and dS -----------------------------------------------------------------------------------

// Of own keys and streamed queries: S becomes P. `lse` is that of the first of kWide queries, in
// base 2, as `scale` is.
template <class C>
__device__ __forceinline__ void to_P(Scores<C>& S, const float* lse, float scale,
                                     const Lane<C>& me) {
  FLASH_UNROLL
  for (int n = 0; n < C::kWide / 8; ++n) {
    const float2 lse_n = *reinterpret_cast<const float2*>(lse + 8 * n + me.t2);
    FLASH_UNROLL
    for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
    for (int i = 0; i < 4; ++i)
      S[tile][n][i] =
          exp2_approximate(fmaf(S[tile][n][i], scale, i % 2 == 0 ? -lse_n.x : -lse_n.y));
  }
}

// dP becomes dS = P (dP - delta).
template <class C>
__device__ __forceinline__ void to_dS(Scores<C>& dP, const Scores<C>& P, const float* delta,
                                      const Lane<C>& me) {
  FLASH_UNROLL
  for (int n = 0; n < C::kWide / 8; ++n) {
    const float2 delta_n = *reinterpret_cast<const float2*>(delta + 8 * n + me.t2);
    FLASH_UNROLL
    for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
    for (int i = 0; i < 4; ++i)
      dP[tile][n][i] = P[tile][n][i] * (dP[tile][n][i] - (i % 2 == 0 ? delta_n.x : delta_n.y));
  }
}

// ---- The gradients of own keys ------------------------------------------------------------------

// Which pairs count: key j0 + j and query i0 + s, if j0 + j < keys and, with a mask, j0 + j <= i0 +
// s.
struct Pairs {
  int keys, j0, i0;
  bool causal;
};

// P = 0 for all other pairs.
template <class C>
__device__ __forceinline__ void mask_P(Scores<C>& P, const Pairs& pairs, int s, const Lane<C>& me) {
  FLASH_UNROLL
  for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int j = pairs.j0 + me.row0 + 16 * tile + me.g + i / 2 * 8,
              first = pairs.causal ? j - pairs.i0 - s - me.t2 - i % 2 : 0;
    FLASH_UNROLL
    for (int n = 0; n < C::kWide / 8; ++n)
      if (j >= pairs.keys || 8 * n < first) P[tile][n][i] = 0;
  }
}

// From P and dS of the warp's keys and its part of the queries: their share of dV and dK. P
// goes to shared memory where there are partners, and dS where kStores_dS.
template <bool kStores_dS, class C, class T>
__device__ __forceinline__ void add_own_queries(Gradient<C>& dK, Gradient<C>& dV,
                                                const Tile<T, C::kHeadDim>& K_smem,
                                                const Tile<T, C::kHeadDim>& V_smem,
                                                const Step<C, T>& step, float scale,
                                                const Pairs& pairs, const Lane<C>& me) {
  FLASH_UNROLL_BY(1)
  for (int s = me.streamed0; s < me.streamed0 + C::kStreamedOfWarp; s += C::kWide) {
    Scores<C> P, dS;
    Weights<C> W;
    multiply<(C::kUnroll < 2 ? C::kUnroll : 2), C>(P, K_smem, step.Q, s, me);
    to_P<C>(P, step.lse + s, scale, me);
    if ((pairs.causal && pairs.i0 + s < pairs.j0 + C::kOwn - 1) || pairs.j0 + C::kOwn > pairs.keys)
      mask_P<C>(P, pairs, s, me);
    round<C, T>(W, P);
    if constexpr (C::kShare > 1) store_weights<C>(step.P, W, s, me);
    add_own<C>(dV, W, step.dO, s, me);  // dV += P^T dO

    multiply<C::kUnroll, C>(dS, V_smem, step.dO, s, me);
    to_dS<C>(dS, P, step.delta + s, me);
    round<C, T>(W, dS);
    if constexpr (kStores_dS) store_weights<C>(step.dS, W, s, me);
    add_own<C>(dK, W, step.Q, s, me);  // dK += dS^T Q
  }
}

// The share of the other queries of the step, behind a barrier.
template <class C, class T>
__device__ __forceinline__ void add_other_queries(Gradient<C>& dK, Gradient<C>& dV,
                                                  const Step<C, T>& step, const Lane<C>& me) {
  add_partners<C>(dV, step.P, step.dO, me);
  add_partners<C>(dK, step.dS, step.Q, me);
}

// ---- The gradient of the streamed rows ----------------------------------------------------------

// Adds the block's share of dQ, dS K, to the sums of a head, rows i0 to i0 + kStreamed - 1. dS lies
// as dS^T, a row a key.
template <class C, class T>
__device__ __forceinline__ void add_dQ(float* sums, const Tile<T, C::kStreamed>& dS_smem,
                                       const Tile<T, C::kHeadDim>& K_smem, int i0,
                                       const Lane<C>& me) {
  const int row = me.warp / C::kAcross * 32,
            column = static_cast<int>(me.warp % C::kAcross) * C::kColumnsAcross;
  float dQ[2][C::kColumnsAcross / 8][4] = {};
  FLASH_UNROLL_BY(2)
  for (int k = 0; k < C::kOwn; k += 16) {
    std::uint32_t dS[2][4];
    FLASH_UNROLL
    for (int tile = 0; tile < 2; ++tile)
      ldmatrix<true>(dS[tile], dS_smem.chunk(k + me.lane / 16 * 8 + me.lane % 8,
                                             (row + 16 * tile) / 8 + me.lane / 8 % 2));
    add_product<2, C::kColumnsAcross>(dQ, dS, K_smem, k, column, me.lane);
  }
  FLASH_UNROLL
  for (int tile = 0; tile < 2; ++tile) FLASH_UNROLL
  for (int n = 0; n < C::kColumnsAcross / 8; ++n)
    add_in_memory(sums + place_of_sums<C::kHeadDim>(i0 + row + 16 * tile, column + 8 * n, me.lane),
                  dQ[tile][n]);
}

// ---- Ends ---------------------------------------------------------------------------------------

// Stores factor times the gradient of the warp's own rows. Four lanes exchange their columns, so
// that each stores 16 bytes.
template <class C, class T>
__device__ __forceinline__ void store(const Gradient<C>& own, const TensorView<T, 4>& to,
                                      const BlockOfHead& block, float factor, const Lane<C>& me) {
  FLASH_UNROLL
  for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const Index row = block.first + me.row0 + 16 * tile + 8 * half + me.g;
    FLASH_UNROLL
    for (int n = 0; n < C::kColumns / 8; n += 4) {
      std::uint32_t words[4];
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i)
        words[i] =
            pack<T>(own[tile][n + i][2 * half] * factor, own[tile][n + i][2 * half + 1] * factor);
      exchange(words, me.lane);
      const int column = me.column0 + 8 * n + 4 * me.t2;
      if (row < to.extent(2) && column < to.extent(3))
        *reinterpret_cast<uint4*>(&to(block.b, block.h, row, column)) = {words[0], words[1],
                                                                         words[2], words[3]};
    }
  }
}

// Launches a kernel for blocks of `own` rows of all heads, past which `streamed` rows stream.
template <class C, class T, class Kernel>
void launch_blocks(const char* name, Kernel kernel, C, const AttentionBackward<T>& pass,
                   const Workspace& work, Index own, Index streamed) {
  const auto scale = static_cast<float>(attention_scale(pass.options, pass.shape().head_dim));
  launch(name, kernel,
         {.grid = grid_size(work.heads * ((own + C::kOwn - 1) / C::kOwn)),
          .block = static_cast<unsigned>(C::kThreads),
          .shared_bytes = C::kSharedBytes,
          .stream = pass.stream},
         pass, work, scale, static_cast<float>(scale * kLog2E),
         heads_of_section(work.heads, std::max<Index>(streamed, 1), 8 * C::kHeadDim));
}

// A pass with sums for dQ: prepares them, launches the first kernel of the table that is wide
// enough for the head and fits into shared memory, and stores dQ.
template <class T, class Table, class KernelOf>
void run(const char* name, const AttentionBackward<T>& pass, const PassMemory& memory, Table table,
         KernelOf kernel_of) {
  const AttentionShape shape = check_attention(pass);
  const Workspace work = workspace_at(memory.workspace, shape);
  with_config(table, shape.head_dim, [&]<class C>(C config) {
    prepare<C::kHeadDim, true>(pass, work);
    if (shape.keys > 0)
      launch_blocks(name, kernel_of(config), config, pass, work, shape.keys, shape.queries);
    finish<C::kHeadDim>(pass, work,
                        static_cast<float>(attention_scale(pass.options, shape.head_dim)));
  });
}

// head_dim, rounded up to what the kernels compute with.
inline int width_of(Index head_dim) { return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256; }

// Enters a rung for both types of 16 bits. kSums: its kernels add to the sums of dQ. `best` as in
// Entry.
template <bool kSums, class Backward>
void enter(Registry& registry, const char* name, Backward backward, Index widest = 256,
           bool best = true) {
  registry.backward.add(
      {.name = name,
       .device = DeviceKind::kGpu,
       .run = {.float16 = backward, .bfloat16 = backward},
       .unsupported =
           [widest](const AttentionProblem& problem) {
             std::string why = why_not(problem);
             return !why.empty() ? why : why_above("head_dim", problem.shape.head_dim, widest);
           },
       .workspace_bytes =
           [](const AttentionProblem& problem) {
             return workspace_bytes(problem.shape, kSums ? width_of(problem.shape.head_dim) : 0);
           },
       .best = best,
       .finite_inputs = true});
}

}  // namespace flash::gradients
