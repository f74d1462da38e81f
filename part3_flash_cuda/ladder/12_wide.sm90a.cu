// Rung 12: heads of 257 to 1024 columns, on wgmma.
//
// New: a thread block has only some columns of O. A warpgroup holds 64 queries by 256 columns of O
// in 128 registers of each thread, and a multiprocessor has room for two such warpgroups. So two
// blocks share the same queries: each computes all scores, and half of the columns of O.
//
//   columns       queries of a block    its columns of O    S = Q K^T is computed
//   up to 512     128, 64 a group       256, the same       twice
//   up to 1024    64, the same          512, 256 a group    four times
//
// Q takes up to 128 KB. K and V come in slabs of 96 keys and 64 columns, 12 KB each, through one
// ring of 8 or 9 slabs; heads above 768 have slabs of 64 keys, 8 KB each, and a ring of 12. Heads
// of up to 384, and of 513 to 768, have 192 columns of O a warpgroup in place of 256. A step is the
// slabs of K, then those of V of the step before, so that the softmax runs beside P V. The slabs of
// V that a warpgroup multiplies by are neighbours in the ring: then they are one operand of 256
// columns. The first step's slabs of K bring the slabs of Q with them.
//
// The maximum stays as it is while no weight is above 4, so O is rarely rescaled. With q 8 times as
// large the error is 1.05 times PyTorch's. If weights may reach 64 it is 1.14 to 1.17 times, since
// the largest weight of a row is then rounded.
//
// The exponentials must run beside P V. Without the wait for the next slab, which stands between
// them and the end of P V, ptxas moves them behind it, and 16 heads of 512 take 16 % more time.
//
// The bottleneck: the tensor cores. S is computed twice, so 467 TFLOP/s of needed products are 700
// of computed ones. Measured on an H200 in turns with PyTorch's memory-efficient kernel: one head
// of 1024, batch 4, 1024 tokens, half: 0.077 ms, with a mask 0.074, 2.7 times as fast. 16 heads of
// 512, batch 4, 4096 tokens, bfloat16: 467 TFLOP/s, with a mask 442, 3.45 and 3.39 times as fast.
#include "part3_flash_cuda/ladder/warpgroups.hpp"
#include "part3_flash_cuda/ladder/wide.hpp"

namespace flash::wide_heads {
namespace {

using namespace hopper;

// Two warpgroups compute, kColumns columns of O each. They have kQueryGroups x 64 queries: each its
// own, and the same columns, or both the same queries, and columns side by side.
template <int Width, int Columns, int QueryGroups, int BlockK, int Slots>
struct Config {
  static constexpr int kWidth = Width, kHeadDim = Columns, kBlockK = BlockK,
                       kBlockQ = 64 * QueryGroups, kRowsOfWarp = 16;
  static constexpr bool kSameQueries = QueryGroups == 1;
  static constexpr int kThreads = 384, kRegistersToCopy = 24, kRegistersToCompute = 240;
  // Slabs of 64 columns: a step's of K, a warpgroup's of V, a block's of V, and those in memory.
  static constexpr int kSlabsOfK = Width / 64, kSlabsOfGroup = Columns / 64,
                       kSlabsOfV = kSlabsOfGroup * (kSameQueries ? 2 : 1), kSlots = Slots;
  static constexpr int kParts = kSlabsOfK / kSlabsOfV;  // blocks that share some queries' columns
  // A warpgroup's slabs of V must be neighbours: they are one operand. V of a step arrives while
  // the last slab of K is still read.
  static_assert(kSlots % kSlabsOfGroup == 0 && kSlabsOfK % kSlabsOfGroup == 0 &&
                kSlots > kSlabsOfV);

  template <class T>
  struct Tiles {
    Tile<T, kBlockQ, kWidth> Q;
    Tile<T, kBlockK, 64> slots[kSlots];
  };
  static constexpr std::size_t kSharedBytes = sizeof(Tiles<Half>) + 1024;  // to begin at 1024 bytes
};

// Online softmax of row g (`half` 0) or g + 8 (1), as softmax_row() in fragments.hpp. But m stays
// as it is while no weight is above 4: then O need not be rescaled.
template <class C>
__device__ __forceinline__ float softmax_row(int half, Scores<C>& S, Rows<C>& rows, float scale) {
  constexpr float kLargest = 2;  // in base 2
  float largest = -INFINITY;
  FLASH_UNROLL
  for (int n = 0; n < C::kBlockK / 8; ++n)
    largest = fmaxf(largest, fmaxf(S[n][2 * half], S[n][2 * half + 1]));
  largest = warp_max<4>(largest);
  const float m_old = rows.m[half];
  if ((largest - m_old) * scale > kLargest) rows.m[half] = largest;
  const float safe = rows.m[half] == -INFINITY ? 0 : rows.m[half], reference = safe * scale;
  const float alpha = exp2_approximate((m_old - safe) * scale);
  float sum = 0;
  FLASH_UNROLL
  for (int n = 0; n < C::kBlockK / 8; ++n) {
    FLASH_UNROLL
    for (int i = 2 * half; i < 2 * half + 2; ++i)
      sum += S[n][i] = exp2_approximate(fmaf(S[n][i], scale, -reference));
  }
  rows.l[half] = rows.l[half] * alpha + sum;
  return alpha;
}

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    wide_kernel(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                const __grid_constant__ TensorMap v_map, Arguments<T> a, wide::Parts<T> out) {
  // Blocks that need the same K and V run at the same time: the parts of some queries, and the
  // queries of a head.
  const Work work(a.shape, a.causal, C::kBlockQ, static_cast<int>(blockIdx.x) / C::kParts, 1);
  const int part = static_cast<int>(blockIdx.x) % C::kParts;
  __shared__ Pipeline<C::kSlots> pipeline;
  using Tiles = typename C::template Tiles<T>;
  FLASH_DYNAMIC_SHARED(Tiles, shared);
  Tiles* const smem = align_to_1024(shared);

  if (threadIdx.x == 0) {
    pipeline.init(2);
    fence_barrier_init();
  }
  __syncthreads();
  const int steps = count_steps<C>(work.some_see);
  // A slab has a number: first those of K for step 0, then for each step n > 0 those of K for step
  // n and those of V for step n - 1.
  unsigned slab = 0;

  if (threadIdx.x < 128) {
    give_registers<C::kRegistersToCopy>();
    if (threadIdx.x != 0) return;
    const auto load = [&](const TensorMap& map, int column, int row, int more_bytes) {
      pipeline.wait_empty(slab);
      auto& tile = smem->slots[pipeline.stage(slab)];
      arrive_expecting(pipeline.full(slab), static_cast<int>(sizeof tile) + more_bytes);
      tma_load(tile.slabs[0], map, pipeline.full(slab), column, row, work.h, work.b);
    };
    for (int n = 0; n <= steps && steps > 0; ++n) {
      for (int i = 0; n < steps && i < C::kSlabsOfK; ++i, ++slab) {
        auto& Q = smem->Q.slabs[i];
        load(k_map, 64 * i, n * C::kBlockK, n == 0 ? static_cast<int>(sizeof Q) : 0);
        if (n == 0) tma_load(Q, q_map, pipeline.full(slab), 64 * i, work.i0, work.h, work.b);
      }
      for (int i = 0; n > 0 && i < C::kSlabsOfV; ++i, ++slab)
        load(v_map, 64 * (part * C::kSlabsOfV + i), (n - 1) * C::kBlockK, 0);
    }
    return;
  }

  take_registers<C::kRegistersToCompute>();
  const unsigned thread = threadIdx.x - 128;
  const bool is_leader = thread % 128 == 0;
  // From one lane: ptxas then knows that what follows is the same in all of them.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(thread / 128), 0);
  const Lane<C> lane(C::kSameQueries ? thread % 128 : thread);
  const int first_slab_of_V = C::kSameQueries ? group * C::kSlabsOfGroup : 0;
  const auto Q = smem->Q.by_columns(C::kSameQueries ? 0 : 64 * group);
  Rows<C> rows;
  Scores<C> S;
  Weights<C> P;

  // S = Q K^T. The last slab is still read.
  const auto QK = [&] {
    FLASH_UNROLL_BY(4)
    for (int i = 0; i < C::kSlabsOfK; ++i, ++slab) {
      pipeline.wait_full(slab);
      const auto K = smem->slots[pipeline.stage(slab)].by_columns();
      wgmma_fence();
      FLASH_UNROLL
      for (int k = 0; k < 4; ++k) wgmma<C::kBlockK, T>(flat(S), Q[4 * i + k], K[k], i > 0 || k > 0);
      wgmma_commit();
      if (i > 0) {
        wgmma_wait<1>();
        if (is_leader) pipeline.release(slab - 1);
      }
    }
  };
  // O += P V.
  const auto PV = [&] {
    FLASH_UNROLL
    for (int i = 0; i < C::kSlabsOfGroup; ++i) pipeline.wait_full(slab + first_slab_of_V + i);
    start_PV<C>(rows, P, smem->slots[pipeline.stage(slab + first_slab_of_V)]);
  };
  // Waits for the product, and releases its slabs. A group has to see all slabs land, also those
  // that only the other one reads, before it waits for the next ones in their places.
  const auto end_PV = [&] {
    if constexpr (C::kSameQueries) {
      if (is_leader)
        for (int i = 0; i < C::kSlabsOfGroup; ++i) {
          const unsigned other = slab + C::kSlabsOfGroup - first_slab_of_V + i;
          pipeline.wait_full(other);
          pipeline.release(other);
        }
      sync_named(1 + group, 128);
    }
    wgmma_wait<0>();
    if (is_leader)
      for (int i = 0; i < C::kSlabsOfGroup; ++i) pipeline.release(slab + first_slab_of_V + i);
    slab += C::kSlabsOfV;
  };
  float alpha[2];
  const auto softmax = [&](int n) {
    const int j0 = n * C::kBlockK;
    if (j0 + C::kBlockK > work.all_see) mask_scores<C>(S, work.keys, a.causal, work.i0, j0, lane);
    alpha[0] = softmax_row<C>(0, S, rows, a.scale);
    alpha[1] = softmax_row<C>(1, S, rows, a.scale);
  };

  if (steps > 0) {
    QK();
    wgmma_wait<0>();
    if (is_leader) pipeline.release(slab - 1);
    softmax(0);
    pack_weights<C, T>(P, S);
    for (int n = 1; n < steps; ++n) {
      QK();
      PV();
      wgmma_wait<1>();
      if (is_leader) pipeline.release(slab - 1);
      softmax(n);
      // The next slab has mostly landed. The loop keeps ptxas from moving the exponentials behind
      // the end of P V.
      pipeline.wait_full(slab + C::kSlabsOfV);  // no race without it: it only keeps the order
      end_PV();
      if (__any_sync(kAllLanes, alpha[0] != 1 || alpha[1] != 1)) {
        mma::rescale(rows.O, 0, alpha[0]);
        mma::rescale(rows.O, 1, alpha[1]);
      }
      pack_weights<C, T>(P, S);
    }
    PV();
    wgmma_wait<0>();
  }

  const int columns = (part * C::kSlabsOfV + first_slab_of_V) / C::kSlabsOfGroup;
  store<C>(rows, out.parts[columns], columns == 0 ? a.lse : TensorView<float, 3>(), work, a.scale,
           lane);
}

using Configs = Table<Config<384, 192, 2, 96, 9>, Config<512, 256, 2, 96, 8>,
                      Config<768, 192, 1, 96, 9>, Config<1024, 256, 1, 64, 12>>;

}  // namespace

FLASH_ENTER(registry, name) {
  const auto why_not = [](const AttentionProblem& problem) {
    return wide::why_not(problem, hopper::why_not);
  };
  enter(registry, name, why_not, []<class T>(const AttentionForward<T>& pass) {
    wide::run(pass, Configs(), [&]<class C>(C config) {
      launch("wide", wide_kernel<T, C>,
             launch_config(config, count_work<C>(pass.shape()) * C::kParts, pass.stream),
             tensor_map(pass.q, C::kBlockQ), tensor_map(pass.k, C::kBlockK),
             tensor_map(pass.v, C::kBlockK), make_arguments(pass),
             wide::cut<C::kHeadDim>(pass.out));
    });
  });
}

}  // namespace flash::wide_heads
