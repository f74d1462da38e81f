// What the rungs on wgmma that compute dK, dV and dQ in one pass share: the numbers of a
// configuration, shared memory, the thread that loads, and what becomes of the scores.
//
// A block has 128 keys, and two warpgroups with 64 keys each compute. All of it is transposed: rows
// are keys, columns queries. dK and dV stay in registers from the first step to the last.
#pragma once

#include <string>
#include <type_traits>

#include "bonus_backward/ladder/hopper.hpp"

namespace flash::gradients {

// BlockQ queries a step. dK, dV, S and dP take 2 HeadDim / 2 + 2 BlockQ / 2 registers of a thread.
template <int HeadDim, int BlockQ>
struct OnePass {
  static constexpr int kHeadDim = HeadDim, kBlockQ = BlockQ, kBlockK = 128, kStages = 2;
  static constexpr int kThreads = 384, kRegistersToCopy = 24, kRegistersToCompute = 240;
  static constexpr int kQSize = kBlockQ * kHeadDim, kKSize = kBlockK * kHeadDim,
                       kSSize = kBlockQ * kBlockK;
  static constexpr std::size_t kSharedBytes =
      2 * (2 * kKSize + 2 * kStages * kQSize + 2 * kSSize) + 4 * 2 * kStages * kRowNumbers + 1024;
  static_assert(kHeadDim * kBlockQ == 64 * 128);
};
using OnePassConfigs = Table<OnePass<64, 128>, OnePass<128, 64>>;

// In one structure they have one address. "full" waits for copies or stores, "empty" for all warps
// that compute.
struct OnePassBarriers {
  Barrier K_full, V_full, Q_full[2], dO_full[2], Q_empty[2], dO_empty[2], dS_full[2], dS_empty[2];

  __device__ __forceinline__ void init_all() {
    init(K_full, 1);
    init(V_full, 1);
    for (int i = 0; i < 2; ++i) {
      init(Q_full[i], 1);
      init(dO_full[i], 1);
      init(Q_empty[i], 8);
      init(dO_empty[i], 8);
      init(dS_full[i], 8);
      init(dS_empty[i], 8);
    }
    fence_barrier_init();
  }
};

// The tiles in shared memory; those of the stages, and the two buffers of dS, lie one behind the
// other.
template <class T, class C>
struct OnePassTiles {
  T *K, *V, *Q, *dO, *dS;
  float *lse, *delta;

  __device__ __forceinline__ explicit OnePassTiles(T* shared)
      : K(align_to_1024(shared)),
        V(K + C::kKSize),
        Q(V + C::kKSize),
        dO(Q + C::kStages * C::kQSize),
        dS(dO + C::kStages * C::kQSize),
        lse(reinterpret_cast<float*>(dS + 2 * C::kSSize)),
        delta(lse + C::kStages * kRowNumbers) {}
};

struct OnePassMaps {
  TensorMap q, k, v, d_out, rows, d_k, d_v;
};

struct OnePassArguments {
  AttentionShape shape;
  Workspace work;
  int section;
  float scale, scale_in_base_2;
  bool causal;
};

// The keys of a thread block, and its steps: those queries that see any of the keys.
template <class C>
struct OnePassSteps {
  BlockOfHead block;
  int first, count;

  __device__ __forceinline__ explicit OnePassSteps(const OnePassArguments& a)
      : OnePassSteps(a,
                     BlockOfHead(a.shape, a.section, a.shape.keys, C::kBlockK, a.causal, false)) {}
  __device__ __forceinline__ OnePassSteps(const OnePassArguments& a, const BlockOfHead& block_)
      : block(block_), first(a.causal ? block.first / C::kBlockQ : 0) {
    const int all = static_cast<int>((a.shape.queries + C::kBlockQ - 1) / C::kBlockQ);
    count = all > first ? all - first : 0;
  }
};

// The loading thread's work. A stage holds Q with lse and, separately, dO with delta.
template <class C, class T>
__device__ __forceinline__ void load_all(const OnePassMaps& maps, const OnePassTiles<T, C>& tiles,
                                         OnePassBarriers& barriers, const OnePassArguments& a,
                                         const OnePassSteps<C>& steps) {
  const int first_row = steps.block.head * static_cast<int>(a.work.rows / 32);
  for (int n = 0; n < steps.count; ++n) {
    const int stage = n % C::kStages, parity = n / C::kStages % 2,
              i0 = (steps.first + n) * C::kBlockQ, row = first_row + i0 / 32;
    const auto load_keys = [&](T* tile, const TensorMap& map, Barrier& full) {
      if (n > 0) return;
      arrive_expecting(full, 2 * C::kKSize);
      load_tile<C::kBlockK, C::kHeadDim>(tile, map, full, steps.block.first, steps.block);
    };
    const auto load_queries = [&](T* tile, const TensorMap& map, float* numbers, int which,
                                  Barrier& full, Barrier& empty) {
      wait(empty, parity ^ 1);
      arrive_expecting(full, 2 * C::kQSize + 4 * C::kBlockQ);
      load_tile<C::kBlockQ, C::kHeadDim>(tile + stage * C::kQSize, map, full, i0, steps.block);
      tma_load(numbers + stage * kRowNumbers, maps.rows, full, 0, row, which, 0);
    };
    load_keys(tiles.K, maps.k, barriers.K_full);
    load_queries(tiles.Q, maps.q, tiles.lse, 0, barriers.Q_full[stage], barriers.Q_empty[stage]);
    load_keys(tiles.V, maps.v, barriers.V_full);
    load_queries(tiles.dO, maps.d_out, tiles.delta, 1, barriers.dO_full[stage],
                 barriers.dO_empty[stage]);
  }
}

// ---- Scores -------------------------------------------------------------------------------------

template <class C>
using RowNumbers = float2[C::kBlockQ / 8];

template <class C>
__device__ __forceinline__ void read_rows(RowNumbers<C>& numbers, const float* box,
                                          const RowPlace& place) {
  FLASH_UNROLL
  for (int i = 0; i < C::kBlockQ / 8; ++i) numbers[i] = place(box, i);
}

// P = exp2(scale S - lse), in place.
template <class C>
__device__ __forceinline__ void weigh(float (&S)[C::kBlockQ / 2], const RowNumbers<C>& lse,
                                      float scale) {
  FLASH_UNROLL
  for (int i = 0; i < C::kBlockQ / 8; ++i) FLASH_UNROLL
  for (int r = 0; r < 2; ++r) {
    float* const two = &S[4 * i + 2 * r];
    two[0] = exp2_approximate(fmaf(two[0], scale, -lse[i].x));
    two[1] = exp2_approximate(fmaf(two[1], scale, -lse[i].y));
  }
}

// dS = P (dP - delta), in place.
template <class C>
__device__ __forceinline__ void differentiate(float (&dP)[C::kBlockQ / 2],
                                              const float (&P)[C::kBlockQ / 2],
                                              const RowNumbers<C>& delta) {
  FLASH_UNROLL
  for (int i = 0; i < C::kBlockQ / 8; ++i) FLASH_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int at = 4 * i + 2 * r;
    dP[at] = P[at] * (dP[at] - delta[i].x);
    dP[at + 1] = P[at + 1] * (dP[at + 1] - delta[i].y);
  }
}

// ---- dQ -----------------------------------------------------------------------------------------

// Of dQ = dS K a warpgroup has 64 queries and 64 columns: the rows 64 kGroup and on where a step
// has 128 queries, the columns where it has 64.
template <class C, int kGroup>
struct PartOfDQ {
  static constexpr int kRow = C::kBlockQ == 128 ? 64 * kGroup : 0,
                       kColumn = C::kBlockQ == 128 ? 0 : 64 * kGroup;

  // Starts the product, a group of wgmma.
  template <class T>
  static __device__ __forceinline__ void start(float (&dQ)[32], const T* dS, const T* K) {
    const MatrixDescriptor rows = by_rows(dS + kRow * 64),
                           columns = by_columns<C::kBlockK>(K + kColumn * C::kBlockK);
    wgmma_fence();  // no race without it in 6_wgmma_one_pass: the step's scores had one after add()
    FLASH_UNROLL
    for (int k = 0; k < C::kBlockK / 16; ++k)
      wgmma<64, T, true>(dQ, rows + (k / 4 * C::kBlockQ * 128 + k % 4 * 32), columns + k * 2048,
                         k > 0);
    wgmma_commit();
  }

  // Where a warp's sums of a head's first step are.
  static __device__ __forceinline__ float* place(const Workspace& work, int head, int warp,
                                                 unsigned lane) {
    return work.sums + Index{head} * work.rows * C::kHeadDim +
           place_of_sums<C::kHeadDim>(kRow + 16 * warp, kColumn, lane);
  }
  // Adds it to the sums of step number `step` of the head.
  static __device__ __forceinline__ void add(float* sums, int step, const float (&dQ)[32]) {
    float* const to = sums + step * (C::kBlockQ * C::kHeadDim);
    FLASH_UNROLL
    for (int i = 0; i < 8; ++i) {
      const float four[4] = {dQ[4 * i], dQ[4 * i + 1], dQ[4 * i + 2], dQ[4 * i + 3]};
      add_in_memory(to + i * 128, four);
    }
  }
};

// Where a lane stores its parts of dS, transposed: rows are queries then.
template <class C, int kGroup, class T>
__device__ __forceinline__ T* place_of_dS(T* dS, int warp, unsigned lane) {
  return chunk_of<C::kBlockQ>(dS, static_cast<int>(lane / 16 * 8 + lane % 8),
                              8 * kGroup + 2 * warp + static_cast<int>(lane / 8 % 2));
}
template <class C, class T>
__device__ __forceinline__ void store_dS(T* place, const Packed<C::kBlockQ>& dS) {
  FLASH_UNROLL
  for (int k = 0; k < C::kBlockQ / 16; ++k) stmatrix<true>(place + k * 16 * 64, dS[k]);
}

// ---- Around the kernels -------------------------------------------------------------------------

// kernel_of(config) is the kernel void(const __grid_constant__ OnePassMaps, OnePassArguments).
template <class T, class KernelOf>
void run_one_pass(const char* name, const AttentionBackward<T>& pass, const PassMemory& memory,
                  KernelOf kernel_of) {
  const AttentionShape shape = check_attention(pass);
  with_config(OnePassConfigs(), shape.head_dim, [&]<class C>(C config) {
    const Workspace work = workspace_at(memory.workspace, shape);
    prepare<C::kHeadDim, true>(pass, work);
    const auto scale = static_cast<float>(attention_scale(pass.options, shape.head_dim));
    if (shape.keys > 0)
      launch(name, kernel_of(config),
             {.grid = grid_size(work.heads * ((shape.keys + C::kBlockK - 1) / C::kBlockK)),
              .block = static_cast<unsigned>(C::kThreads),
              .shared_bytes = C::kSharedBytes,
              .stream = pass.stream,
              .begins_early = true},
             OnePassMaps{tensor_map(pass.q, C::kBlockQ), tensor_map(pass.k, C::kBlockK),
                         tensor_map(pass.v, C::kBlockK), tensor_map(pass.d_out, C::kBlockQ),
                         map_of_rows(work, C::kBlockQ), tensor_map(pass.d_k, 16),
                         tensor_map(pass.d_v, 16)},
             OnePassArguments{shape, work,
                              heads_of_section(work.heads, shape.queries, 8 * C::kHeadDim), scale,
                              scale_in_base_2(pass.options, shape.head_dim), pass.options.causal});
    finish<C::kHeadDim>(pass, work, scale);
  });
}

inline std::size_t one_pass_workspace(const AttentionShape& shape) {
  return workspace_bytes(shape, shape.head_dim <= 64 ? 64 : 128);
}

// The entry of a pass for heads of up to 128.
template <class Backward>
Entry<AttentionBackward> one_pass_entry(const char* name, Backward backward) {
  return {.name = name,
          .device = DeviceKind::kGpu,
          .run = {.float16 = backward, .bfloat16 = backward},
          .unsupported =
              [](const AttentionProblem& problem) {
                const std::string why = why_above("head_dim", problem.shape.head_dim, 128);
                return why.empty() ? why_not_on_hopper(problem) : why;
              },
          .workspace_bytes =
              [](const AttentionProblem& problem) { return one_pass_workspace(problem.shape); },
          .finite_inputs = true};
}

}  // namespace flash::gradients
