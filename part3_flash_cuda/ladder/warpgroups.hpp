// What the rungs on wgmma share (Hopper): the numbers of a configuration, tiles that TMA loads and
// wgmma reads, both products, and the launch. A warpgroup owns 64 queries, each of its warps 16, so
// a thread's scores, rows and columns of O are those of fragments.hpp with one tile a warp.
//
// A tile of R rows is stored in slabs of 64 columns, R x 128 bytes each, one behind the other; a
// box of TMA is a slab. They begin at multiples of 1024 bytes.
#pragma once

#include "common/cuda/pipeline.hpp"
#include "common/cuda/shared_address.hpp"
#include "common/cuda/tma.hpp"
#include "common/cuda/warpgroup.hpp"
#include "common/cuda/wgmma.hpp"
#include "part3_flash_cuda/ladder/fragments.hpp"

namespace flash::hopper {

using mma::end_of, mma::enter, mma::kChunk, mma::Lane, mma::launch_of, mma::mask_scores, mma::pack,
    mma::RowEnd, mma::Rows, mma::scale_in_base_2, mma::Scores, mma::softmax_step, mma::store,
    mma::store_lse, mma::tiles_of, mma::unpack, mma::Work;

// kGroups warpgroups compute, 64 queries each; kProducers more copy. kBlockK keys a step, shared
// memory for K and V of kStages steps.
template <int HeadDim, int BlockK, int Groups, int Stages, int Producers>
struct Config {
  static constexpr int kHeadDim = HeadDim, kBlockK = BlockK, kGroups = Groups, kStages = Stages,
                       kProducers = Producers, kBlockQ = 64 * Groups;
  static constexpr int kThreads = 128 * (Groups + Producers);
  static constexpr int kRowsOfWarp = 16, kTiles = 1;
  // The block starts with 168, 128 or 96 registers a thread for 3, 4 or 5 warpgroups, and shares
  // them out anew: 40 + 2 * 232 = 3 * 168, 32 + 3 * 160 = 4 * 128, 32 + 4 * 112 = 5 * 96.
  static constexpr int kRegistersToCopy = kGroups == 2 ? 40 : 32,
                       kRegistersToCompute = kGroups == 2   ? 232
                                             : kGroups == 3 ? 160
                                                            : 112;
  static constexpr bool kTestsAlpha = true;
  static constexpr int kQSize = kBlockQ * kHeadDim, kKSize = kBlockK * kHeadDim;  // elements
  static constexpr std::size_t kSharedBytes = 2 * (kQSize + 2 * kStages * kKSize) + 1024;
  static_assert(kHeadDim % 64 == 0 && kBlockK % 16 == 0 && kBlockK <= 256);
};

// ---- Tiles --------------------------------------------------------------------------------------

// The address of 16 bytes in a tile of kRows rows: columns 8 c to 8 c + 7 of a row.
template <int kRows, class T>
__device__ __forceinline__ T* chunk_of(T* tile, int row, int c) {
  return tile + (c / 8 * kRows + row) * 64 + (c % 8 ^ row % 8) * kChunk;
}

// Of each stage: "full" waits for its copy, "empty" for all warpgroups that compute.
template <class C>
__device__ __forceinline__ void init_stages(Barrier (&K_full)[C::kStages],
                                            Barrier (&V_full)[C::kStages],
                                            Barrier (&K_empty)[C::kStages],
                                            Barrier (&V_empty)[C::kStages]) {
  for (int stage = 0; stage < C::kStages; ++stage) {
    init(K_full[stage], 1);
    init(V_full[stage], 1);
    init(K_empty[stage], C::kGroups);
    init(V_empty[stage], C::kGroups);
  }
}

// Starts the copies of rows row0 to row0 + kRows - 1 of a head; `barrier` counts their bytes.
template <class C, int kRows, class T>
__device__ __forceinline__ void load_tile(T* tile, const TensorMap& map, Barrier& barrier, int row0,
                                          const Work& work) {
  arrive_expecting(barrier, kRows * C::kHeadDim * 2);
  FLASH_UNROLL
  for (int slab = 0; slab < C::kHeadDim / 64; ++slab)
    tma_load(tile + slab * kRows * 64, map, barrier, 64 * slab, row0, work.h, work.b);
}

// Brings the rows into the L2 cache, for a later load_tile().
template <class C, int kRows>
__device__ __forceinline__ void prefetch_tile(const TensorMap& map, int row0, const Work& work) {
  FLASH_UNROLL
  for (int slab = 0; slab < C::kHeadDim / 64; ++slab)
    tma_prefetch(map, 64 * slab, row0, work.h, work.b);
}

// ---- Products -----------------------------------------------------------------------------------

// Of Q or K: 16 columns are 32 bytes, and 8 rows 1024.
template <class T>
__device__ __forceinline__ MatrixDescriptor rows_of(const T* tile) {
  return matrix_descriptor(tile, 16, 1024);
}
// Of V, whose rows are B's rows: 16 of them are 2048 bytes, the next 64 columns a slab further on.
template <class C, class T>
__device__ __forceinline__ MatrixDescriptor columns_of(const T* tile) {
  return matrix_descriptor(tile, C::kBlockK * 128, 1024);
}

template <int N>
__device__ __forceinline__ float (&flat(float (&x)[N][4]))[4 * N] {
  return reinterpret_cast<float(&)[4 * N]>(x);
}

// Starts S = Q K^T for the warpgroup's 64 queries, a group of wgmma.
template <class C, class T>
__device__ __forceinline__ void start_QK(Scores<C>& S, MatrixDescriptor Q, MatrixDescriptor K) {
  wgmma_fence();
  FLASH_UNROLL
  for (int k = 0; k < C::kHeadDim / 16; ++k)
    wgmma<C::kBlockK, T>(flat(S[0]), Q + (k / 4 * C::kBlockQ * 128 + k % 4 * 32),
                         K + (k / 4 * C::kBlockK * 128 + k % 4 * 32), k > 0);
  wgmma_commit();
}

template <class C>
using Weights = std::uint32_t[C::kBlockK / 16][4];

// P in 16 bits. What a thread has of S is what it has to give to P V.
template <class C, class T>
__device__ __forceinline__ void pack_weights(Weights<C>& P, const Scores<C>& S) {
  FLASH_UNROLL
  for (int k = 0; k < C::kBlockK / 16; ++k) FLASH_UNROLL
  for (int i = 0; i < 4; ++i)
    P[k][i] = pack<T>(S[0][2 * k + i / 2][i % 2 * 2], S[0][2 * k + i / 2][i % 2 * 2 + 1]);
}

// Starts O += P V, a group of wgmma.
template <class C, class T>
__device__ __forceinline__ void start_PV(Rows<C>& rows, const Weights<C>& P, MatrixDescriptor V) {
  wgmma_fence();
  FLASH_UNROLL
  for (int k = 0; k < C::kBlockK / 16; ++k)
    wgmma<C::kHeadDim, T, true>(flat(rows.O[0]), P[k], V + k * 2048, true);
  wgmma_commit();
}

// ---- Softmax ------------------------------------------------------------------------------------

// P = exp2(scale * (S - m)) with m as it is, though some scores may be larger. Returns false where
// a thread's sum of a row, of any row of the warp, is above kMost, inf or NaN, as it is where a row
// has no m yet. Then only P has changed.
//
// O gets the weights as T rounds them. With the true m the largest weight is 1, which is exact. A
// weight above 64 dominates its row, and is rounded. There O is divided by the sum of the rounded
// weights, so that what was rounded cancels; lse still has the sum of the others.
template <class C, class T>
__device__ __forceinline__ bool softmax_with_old_maximum(Weights<C>& P, const Scores<C>& S,
                                                         Rows<C>& rows, float scale) {
  constexpr float kLarge = 64, kMost = std::is_same_v<T, Half> ? 0x1p14f : 0x1p60f;
  const float reference[2] = {rows.m[0][0] * scale, rows.m[0][1] * scale};
  float sum[2] = {};
  FLASH_UNROLL
  for (int k = 0; k < C::kBlockK / 16; ++k) FLASH_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int half = i % 2;
    const float(&two)[4] = S[0][2 * k + i / 2];
    const float low = exp2_approximate(fmaf(two[2 * half], scale, -reference[half])),
                high = exp2_approximate(fmaf(two[2 * half + 1], scale, -reference[half]));
    sum[half] += low;
    sum[half] += high;
    P[k][i] = pack<T>(low, high);
  }
  if (__any_sync(kAllLanes, !(sum[0] <= kLarge) || !(sum[1] <= kLarge))) {
    if (__any_sync(kAllLanes, !(sum[0] <= kMost) || !(sum[1] <= kMost))) return false;
    float rounded[2] = {};
    FLASH_UNROLL
    for (int k = 0; k < C::kBlockK / 16; ++k) FLASH_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float2 two = unpack<T>(P[k][i]);
      rounded[i % 2] += two.x;
      rounded[i % 2] += two.y;
    }
    rows.rounding[0][0] += rounded[0] - sum[0];
    rows.rounding[0][1] += rounded[1] - sum[1];
  }
  rows.l[0][0] += sum[0];
  rows.l[0][1] += sum[1];
  return true;
}

// Online softmax with a new m, where the old one does not do.
template <class C, class T>
__device__ __forceinline__ void softmax_with_new_maximum(Weights<C>& P, Scores<C>& S,
                                                         Rows<C>& rows, float scale) {
  const float m_old[2] = {rows.m[0][0], rows.m[0][1]};
  softmax_step<C>(S, rows, scale);
  FLASH_UNROLL
  for (int half = 0; half < 2; ++half)
    rows.rounding[0][half] *= exp2_approximate((m_old[half] - rows.m[0][half]) * scale);
  pack_weights<C, T>(P, S);
}

// ---- O to shared memory -------------------------------------------------------------------------

// Writes O of the warp's 16 rows, times 1 / l, to a tile of shared memory.
template <class C, class T>
__device__ __forceinline__ void put_O(T* tile, const Rows<C>& rows, const RowEnd (&end)[2],
                                      const Lane<C>& me) {
  FLASH_UNROLL
  for (int c = 0; c < C::kHeadDim / 8; c += 2) {
    std::uint32_t four[4];
    FLASH_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float(&two)[4] = rows.O[0][c + j / 2];
      four[j] =
          pack<T>(two[j % 2 * 2] * end[j % 2].inverse, two[j % 2 * 2 + 1] * end[j % 2].inverse);
    }
    stmatrix(chunk_of<C::kBlockQ>(tile, me.first_row + me.lane % 16, c + me.lane / 16), four);
  }
}

// ---- Turns --------------------------------------------------------------------------------------

// The warpgroups' turns: each has a named barrier, where it waits until the one before it has ended
// its turn.
template <class C>
class Turns {
 public:
  __device__ __forceinline__ explicit Turns(int thread) : group_(thread / 128) {
    if (is_last()) end();  // the first group may begin
  }
  __device__ __forceinline__ void begin() const { sync_named(kFirst + group_, kBoth); }
  __device__ __forceinline__ void end() const {
    arrive_named(kFirst + (group_ + 1) % C::kGroups, kBoth);
  }
  // After the last turn: nobody else waits for the end of the last group's turn.
  __device__ __forceinline__ void close() const {
    if (group_ == 0) begin();
  }

 private:
  static constexpr int kFirst = 2, kBoth = 256;  // threads of two groups
  __device__ __forceinline__ bool is_last() const { return group_ == C::kGroups - 1; }
  int group_;
};

// ---- Around the kernels -------------------------------------------------------------------------

// Why the kernels do not take a problem, in words; "" when they take it.
inline std::string why_not(const AttentionProblem& problem) {
  const std::string why = why_not_hopper();
  return why.empty() ? mma::why_not(problem) : why;
}

// What every kernel takes.
template <class T>
struct Arguments {
  TensorView<T, 4> out;
  TensorView<float, 3> lse;
  AttentionShape shape;
  float scale;  // in base 2
  bool causal;
};
template <class T>
Arguments<T> arguments_of(const AttentionForward<T>& pass) {
  return {pass.out, pass.lse, pass.shape(), scale_in_base_2(pass), pass.options.causal};
}

// Launches the kernel with the first configuration of the table that is wide enough for the head.
template <class Table, class T, class KernelOf>
void run(const char* name, const AttentionForward<T>& pass, Table table, KernelOf kernel_of) {
  const AttentionShape shape = check_attention(pass);
  with_config(table, shape.head_dim, [&]<class C>(C config) {
    launch(name, kernel_of(config), launch_of(config, tiles_of<C>(shape), pass.stream),
           tensor_map(pass.q, C::kBlockQ), tensor_map(pass.k, C::kBlockK),
           tensor_map(pass.v, C::kBlockK), arguments_of(pass));
  });
}

}  // namespace flash::hopper
