// What the rungs on wgmma share (Hopper): the numbers of a configuration, tiles that TMA loads and
// wgmma reads, both products, and the launch. A warpgroup owns 64 queries, each of its warps a
// strip of 16: a thread's scores, rows and columns of O are those of fragments.hpp.
#pragma once

#include "common/cuda/pipeline.hpp"
#include "common/cuda/shared_address.hpp"
#include "common/cuda/tma.hpp"
#include "common/cuda/warpgroup.hpp"
#include "common/cuda/wgmma.hpp"
#include "part3_flash_cuda/ladder/fragments.hpp"

namespace flash::hopper {

using mma::count_work, mma::end_row, mma::enter, mma::kChunk, mma::Lane, mma::launch_config,
    mma::mask_scores, mma::RowEnd, mma::Rows, mma::scale_in_base_2, mma::Scores, mma::softmax_step,
    mma::store, mma::store_lse, mma::unpack, mma::Work;

// ---- Tiles --------------------------------------------------------------------------------------

// A tile of 16-bit numbers, stored in slabs of 64 columns, kRows x 128 bytes each, one behind the
// other; TMA copies a slab at a time. A tile begins at a multiple of 1024 bytes.
template <class T, int Rows, int Columns>
struct Tile {
  using Element = T;
  static constexpr int kRows = Rows, kSlabs = (Columns + 63) / 64;
  static_assert(Rows % 8 == 0 && Columns % 16 == 0);

  T slabs[kSlabs][kRows][64];

  // The address of 16 bytes: columns 8 c to 8 c + 7 of a row.
  __device__ __forceinline__ T* chunk(int row, int c) {
    return &slabs[c / 8][row][(c % 8 ^ row % 8) * kChunk];
  }

  // An operand of wgmma, a piece for each k: columns 16 k to 16 k + 15, which are 32 bytes of a
  // row.
  struct Columns16 {
    MatrixDescriptor first;
    __device__ __forceinline__ MatrixDescriptor operator[](int k) const {
      return first + (k / 4 * kRows * 128 + k % 4 * 32);
    }
  };
  // From row `row` on; 8 rows are 1024 bytes.
  __device__ __forceinline__ Columns16 by_columns(int row = 0) {
    return {matrix_descriptor(slabs[0][row], 16, 1024)};
  }

  // An operand of wgmma, a piece for each k: rows 16 k to 16 k + 15, which are 2048 bytes of a
  // slab.
  struct Rows16 {
    MatrixDescriptor first;
    __device__ __forceinline__ MatrixDescriptor operator[](int k) const { return first + k * 2048; }
  };
  // All columns; the next 64 are a slab further on.
  __device__ __forceinline__ Rows16 by_rows() {
    return {matrix_descriptor(slabs, kRows * 128, 1024)};
  }
};

// kGroups warpgroups compute, 64 queries each; kProducers more copy. kBlockK keys a step, shared
// memory for K and V of kStages steps.
template <int HeadDim, int BlockK, int Groups, int Stages, int Producers>
struct Config {
  static constexpr int kHeadDim = HeadDim, kBlockK = BlockK, kGroups = Groups, kStages = Stages,
                       kProducers = Producers, kBlockQ = 64 * Groups;
  static constexpr int kThreads = 128 * (Groups + Producers);
  static constexpr int kRowsOfWarp = 16;
  // The block starts with 168, 128 or 96 registers a thread for 3, 4 or 5 warpgroups, and shares
  // them out anew: 40 + 2 * 232 = 3 * 168, 32 + 3 * 160 = 4 * 128, 32 + 4 * 112 = 5 * 96.
  static constexpr int kRegistersToCopy = kGroups == 2 ? 40 : 32,
                       kRegistersToCompute = kGroups == 2   ? 232
                                             : kGroups == 3 ? 160
                                                            : 112;
  static constexpr bool kTestsAlpha = true;
  static_assert(kHeadDim % 16 == 0 && kBlockK % 16 == 0 && kBlockK <= 256);

  template <class T>
  using QTile = Tile<T, kBlockQ, kHeadDim>;
  template <class T>
  using KTile = Tile<T, kBlockK, kHeadDim>;  // V's, too
  template <class T>
  using Tiles = mma::Tiles<QTile<T>, KTile<T>, kStages>;
  static constexpr std::size_t kSharedBytes = sizeof(Tiles<Half>) + 1024;  // to begin at 1024 bytes
};

// Starts the copies of a tile, rows row0 and on of a head, whose bytes were announced to `barrier`.
// kOnce: nobody reads them again soon.
template <bool kOnce, class Tile>
__device__ __forceinline__ void copy_tile(Tile& tile, const TensorMap& map, Barrier& barrier,
                                          int row0, const Work& work) {
  FLASH_UNROLL
  for (int slab = 0; slab < Tile::kSlabs; ++slab) {
    if constexpr (kOnce)
      tma_load_once(tile.slabs[slab], map, barrier, 64 * slab, row0, work.h, work.b);
    else
      tma_load(tile.slabs[slab], map, barrier, 64 * slab, row0, work.h, work.b);
  }
}

// The same, and announces the bytes.
template <bool kOnce = false, class Tile>
__device__ __forceinline__ void load_tile(Tile& tile, const TensorMap& map, Barrier& barrier,
                                          int row0, const Work& work) {
  arrive_expecting(barrier, sizeof tile);
  copy_tile<kOnce>(tile, map, barrier, row0, work);
}

// Brings a tile into the L2 cache, for a later load_tile().
template <class Tile>
__device__ __forceinline__ void prefetch_tile(const TensorMap& map, int row0, const Work& work) {
  FLASH_UNROLL
  for (int slab = 0; slab < Tile::kSlabs; ++slab)
    tma_prefetch(map, 64 * slab, row0, work.h, work.b);
}

// Starts the copies of a tile, from row `first_row` on as many rows as a box of the map has, to the
// rows of the work's queries: a group.
template <bool kOnce = false, class Tile>
__device__ __forceinline__ void store_tile(const TensorMap& map, Tile& tile, const Work& work,
                                           int first_row = 0) {
  FLASH_UNROLL
  for (int slab = 0; slab < Tile::kSlabs; ++slab) {
    const auto* const from = tile.slabs[slab][first_row];
    if constexpr (kOnce)
      tma_store_once(map, from, 64 * slab, work.i0 + first_row, work.h, work.b);
    else
      tma_store(map, from, 64 * slab, work.i0 + first_row, work.h, work.b);
  }
  tma_commit();
}

// Work number `number` of thread blocks that stay and do not draw their work: block b of G has
// numbers b, b + G, b + 2 G. A head's blocks of queries are neighbours. With a mask the same block
// of each head, a long or a short one, would always meet the same thread block, so each round
// begins with the next one.
__device__ __forceinline__ Work work_in_rounds(const AttentionShape& shape, bool causal,
                                               int block_q, unsigned number) {
  const unsigned blocks = (static_cast<unsigned>(shape.queries) + block_q - 1) / block_q,
                 head = number / blocks, round = causal ? head * blocks / gridDim.x : 0;
  return Work::of_block(shape, causal, block_q, static_cast<int>(head),
                        static_cast<int>((number + round) % blocks));
}

template <class C>
__device__ __forceinline__ int count_steps(int keys) {
  return (keys + C::kBlockK - 1) / C::kBlockK;
}

// ---- Products -----------------------------------------------------------------------------------

template <int N>
__device__ __forceinline__ float (&flat(float (&x)[N][4]))[4 * N] {
  return reinterpret_cast<float(&)[4 * N]>(x);
}

// Starts S = Q K^T for the warpgroup's 64 queries, a group of wgmma. Q is q_tile.by_columns().
template <class C, class Columns16, class Tile>
__device__ __forceinline__ void start_QK(Scores<C>& S, const Columns16& Q, Tile& k_tile) {
  const auto K = k_tile.by_columns();
  wgmma_fence();
  FLASH_UNROLL
  for (int k = 0; k < C::kHeadDim / 16; ++k)
    wgmma<C::kBlockK, typename Tile::Element>(flat(S), Q[k], K[k], k > 0);
  wgmma_commit();
}

template <class C>
using Weights = std::uint32_t[C::kBlockK / 16][4];

// P in 16 bits. What a thread has of S is what it has to give to P V.
template <class C, class T>
__device__ __forceinline__ void pack_weights(Weights<C>& P, const Scores<C>& S) {
  FLASH_UNROLL
  for (int k = 0; k < C::kBlockK / 16; ++k) {
    FLASH_UNROLL
    for (int i = 0; i < 4; ++i)
      P[k][i] = pack<T>(S[2 * k + i / 2][i % 2 * 2], S[2 * k + i / 2][i % 2 * 2 + 1]);
  }
}

// Starts O += P V, a group of wgmma.
template <class C, class Tile>
__device__ __forceinline__ void start_PV(Rows<C>& rows, const Weights<C>& P, Tile& v_tile) {
  const auto V = v_tile.by_rows();
  wgmma_fence();
  FLASH_UNROLL
  for (int k = 0; k < C::kBlockK / 16; ++k)
    wgmma<C::kHeadDim, typename Tile::Element, true>(flat(rows.O), P[k], V[k], true);
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
  const float reference[2] = {rows.m[0] * scale, rows.m[1] * scale};
  float sum[2] = {};
  FLASH_UNROLL
  for (int k = 0; k < C::kBlockK / 16; ++k) {
    FLASH_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int half = i % 2;
      const float(&two)[4] = S[2 * k + i / 2];
      const float low = exp2_approximate(fmaf(two[2 * half], scale, -reference[half])),
                  high = exp2_approximate(fmaf(two[2 * half + 1], scale, -reference[half]));
      sum[half] += low;
      sum[half] += high;
      P[k][i] = pack<T>(low, high);
    }
  }
  if (__any_sync(kAllLanes, !(sum[0] <= kLarge) || !(sum[1] <= kLarge))) {
    if (__any_sync(kAllLanes, !(sum[0] <= kMost) || !(sum[1] <= kMost))) return false;
    float rounded[2] = {};
    FLASH_UNROLL
    for (int k = 0; k < C::kBlockK / 16; ++k) {
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float2 two = unpack<T>(P[k][i]);
        rounded[i % 2] += two.x;
        rounded[i % 2] += two.y;
      }
    }
    rows.rounding[0] += rounded[0] - sum[0];
    rows.rounding[1] += rounded[1] - sum[1];
  }
  rows.l[0] += sum[0];
  rows.l[1] += sum[1];
  return true;
}

// Online softmax with a new m, where the old one does not do.
template <class C, class T>
__device__ __forceinline__ void softmax_with_new_maximum(Weights<C>& P, Scores<C>& S, Rows<C>& rows,
                                                         float scale) {
  const float m_old[2] = {rows.m[0], rows.m[1]};
  softmax_step<C>(S, rows, scale);
  FLASH_UNROLL
  for (int half = 0; half < 2; ++half)
    rows.rounding[half] *= exp2_approximate((m_old[half] - rows.m[half]) * scale);
  pack_weights<C, T>(P, S);
}

// ---- O to shared memory -------------------------------------------------------------------------

// Writes O of the warp's 16 rows, times 1 / l, to a tile.
template <class C, class T, int kRows>
__device__ __forceinline__ void store_O(Tile<T, kRows, C::kHeadDim>& tile, const Rows<C>& rows,
                                        const RowEnd (&end)[2], const Lane<C>& lane) {
  FLASH_UNROLL
  for (int c = 0; c < C::kHeadDim / 8; c += 2) {
    std::uint32_t four[4];
    FLASH_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float(&two)[4] = rows.O[c + j / 2];
      four[j] =
          pack<T>(two[j % 2 * 2] * end[j % 2].inverse, two[j % 2 * 2 + 1] * end[j % 2].inverse);
    }
    stmatrix(tile.chunk(lane.first_row + lane.id % 16, c + lane.id / 16), four);
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
  __device__ __forceinline__ void begin() const {
    sync_named(kFirst + group_, kBoth);  // no race without it: it only gives turns
  }
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
Arguments<T> make_arguments(const AttentionForward<T>& pass) {
  return {pass.out, pass.lse, pass.shape(), scale_in_base_2(pass), pass.options.causal};
}

// Launches the kernel with the first configuration of the table that is wide enough for the head.
template <class Table, class T, class KernelOf>
void run(const char* name, const AttentionForward<T>& pass, Table table, KernelOf kernel_of) {
  const AttentionShape shape = check_attention(pass);
  with_config(table, shape.head_dim, [&]<class C>(C config) {
    launch(name, kernel_of(config), launch_config(config, count_work<C>(shape), pass.stream),
           tensor_map(pass.q, C::kBlockQ), tensor_map(pass.k, C::kBlockK),
           tensor_map(pass.v, C::kBlockK), make_arguments(pass));
  });
}

}  // namespace flash::hopper
