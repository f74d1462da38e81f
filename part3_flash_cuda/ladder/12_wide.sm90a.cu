// Rung 12: heads of 257 to 1024 columns, on wgmma.
//
// New: two warpgroups have the same 64 queries. Each computes the scores of one half of a step's
// keys, and one half of the columns of O: 256 at most, in 128 registers of each thread. P goes
// through shared memory. The fragments of both are the same, so a thread writes 16 bytes, and the
// threads of the same number read them, without a layout and without a fence for wgmma. Heads above
// 512 take two blocks for the same queries, and S is computed twice.
//
//   columns       keys of a step    its pieces of K: 128 keys, 64 columns    ring
//   up to 512     256               each for one warpgroup                   8 pieces of 16 KB
//   up to 1024    128               each for both                            7, above 768 5
//
// A piece of V is 16 keys and the block's columns: one wgmma for each warpgroup, after which it is
// given back. Between these wgmma stand the exponentials of the next step, those of 16 keys at a
// time. The waits for the pieces keep ptxas from moving the exponentials.
//
// A block with only 64 queries reads K and V too often: L2 sends 7.8 TB/s, and 64 operations for
// each byte are 500 TFLOP/s. So two blocks, with 128 neighbouring queries, are a cluster
// (common/cuda/cluster.hpp). Each loads a half of each piece for both: 10 to 12 % faster.
//
// The maximum stays as it is while no weight is above 4, so O is rarely rescaled. With q 8 times as
// large the error is 1.05 times PyTorch's. With a limit of 64 it is 1.14 to 1.17 times, since
// the largest weight of a row is then rounded.
//
// The bottleneck: shared memory. A step of 256 keys moves 1.25 MB through it, 9800 clocks, where
// the tensor cores need 8200. Steps of 128 keys, whose S is two products of 64 x 64, take 5 % more
// time. Measured on an H100 in turns with PyTorch's memory-efficient kernel, with the launch: one
// head of 1024, batch 4, 1024 tokens, half: 0.065 ms, with a mask 0.064, 3.1 and 3.0 times as fast.
// 16 heads of 512, batch 4, 4096 tokens, bfloat16: 3.64 ms, 604 TFLOP/s, with a mask 1.94 ms, 5.0
// and 4.9 times as fast; half 3.76 and 1.99 ms, 4.9 and 4.8 times.
#include "common/cuda/cluster.hpp"
#include "part3_flash_cuda/ladder/warpgroups.hpp"
#include "part3_flash_cuda/ladder/wide.hpp"

namespace flash::wide_heads {
namespace {

using namespace hopper;

// Two warpgroups have the same 64 queries. Each computes the scores of kBlockK of a step's keys,
// and `Columns` columns of O.
template <int Width, int Columns, int BlockK, int Slots>
struct Config {
  static constexpr int kWidth = Width, kHeadDim = Columns, kBlockQ = 128, kQueries = 64,
                       kBlockK = BlockK, kKeys = 2 * BlockK, kRowsOfWarp = 16;
  static constexpr int kThreads = 384, kRegistersToCopy = 24, kRegistersToCompute = 240;
  // Pieces of a step: of K, 128 keys and 64 columns each, and of V, 16 keys each.
  static constexpr bool kOwnK = kBlockK == 128;  // a piece of K is for one warpgroup
  static constexpr int kSlabs = Width / 64, kPiecesOfK = kSlabs * kKeys / 128,
                       kPiecesOfV = kKeys / 16, kSlots = Slots;
  static constexpr int kParts = Width / (2 * Columns);  // blocks that share some queries' columns
  // Odd pieces of K and slots are the other warpgroup's: who has not seen a slot's phase end may
  // take the end of the one before for that of the next.
  static_assert(Width % (2 * Columns) == 0 && (!kOwnK || kSlots % 2 == 0));

  template <class T>
  union Slot {
    Tile<T, 128, 64> K;
    Tile<T, 16, Columns> V[2];  // a warpgroup's columns each
  };
  template <class T>
  struct Tiles {
    Tile<T, kQueries, kWidth> Q;
    Slot<T> slots[kSlots];
    uint4 P[kPiecesOfV][128];  // operands of wgmma: a thread's registers for 16 keys
  };
  static constexpr std::size_t kSharedBytes = sizeof(Tiles<Half>) + 1024;  // to begin at 1024 bytes
};

template <class T, class C>
__global__ void FLASH_CLUSTER __launch_bounds__(C::kThreads, 1)
    wide_kernel(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                const __grid_constant__ TensorMap v_map, Arguments<T> a, wide::Parts<T> out,
                int section) {
  // Blocks that need the same K and V run at the same time: the parts of some queries, and the
  // queries of a head.
  const int rank = static_cast<int>(blockIdx.x) % 2, pair = static_cast<int>(blockIdx.x) / 2,
            part = pair % C::kParts;
  Work work(a.shape, a.causal, C::kBlockQ, pair / C::kParts, section);
  work.i0 += C::kQueries * rank;
  __shared__ Pipeline<C::kSlots> pipeline;
  __shared__ Barrier Q_full[C::kSlabs];
  __shared__ float of_rows[2][C::kQueries];  // what the warpgroups tell each other
  using Tiles = typename C::template Tiles<T>;
  FLASH_DYNAMIC_SHARED(Tiles, shared);
  Tiles* const smem = align_to_1024(shared);

  if (threadIdx.x == 0) {
    pipeline.init(2 * kClusterBlocks);
    for (Barrier& barrier : Q_full) init(barrier, 1);
    fence_barrier_init();
  }
  __syncthreads();
  sync_cluster();
  const int steps = (work.some_see + C::kKeys - 1) / C::kKeys;
  // A piece has a number: first those of K for step 0, then for each step n > 0 those of K for step
  // n and those of V for step n - 1.
  unsigned piece = 0;

  if (threadIdx.x < 128) {
    give_registers<C::kRegistersToCopy>();
    if (threadIdx.x != 0) return;
    // Each block of a cluster loads a half of a piece, for both.
    const auto has = [&](int i) { return kClusterBlocks == 1 || i == rank; };
    const auto load = [&](void* to, const TensorMap& map, int column, int row) {
      tma_load_to_cluster(to, map, pipeline.full(piece), column, row, work.h, work.b);
    };
    for (int n = 0; n <= steps && steps > 0; ++n) {
      for (int i = 0; n < steps && i < C::kPiecesOfK; ++i, ++piece) {
        auto& K = smem->slots[pipeline.stage(piece)].K;
        const int slab = C::kOwnK ? i / 2 : i, row = n * C::kKeys + (C::kOwnK ? i % 2 * 128 : 0);
        if (n == 0 && (!C::kOwnK || i % 2 == 0)) {
          arrive_expecting(Q_full[slab], sizeof smem->Q.slabs[slab]);
          tma_load(smem->Q.slabs[slab], q_map, Q_full[slab], 64 * slab, work.i0, work.h, work.b);
        }
        pipeline.wait_empty(piece);
        arrive_expecting(pipeline.full(piece), sizeof K);
        for (int j = 0; j < 2; ++j)
          if (has(j)) load(K.slabs[0][64 * j], k_map, 64 * slab, row + 64 * j);
      }
      for (int i = 0; n > 0 && i < C::kPiecesOfV; ++i, ++piece) {
        auto& V = smem->slots[pipeline.stage(piece)].V;
        pipeline.wait_empty(piece);
        arrive_expecting(pipeline.full(piece), sizeof V);
        for (int j = 0; j < 2; ++j)
          for (int c = 0; c < C::kHeadDim / 64; ++c)
            if (has(j))
              load(V[j].slabs[c], v_map, (2 * part + j) * C::kHeadDim + 64 * c,
                   (n - 1) * C::kKeys + 16 * i);
      }
    }
    return;
  }

  take_registers<C::kRegistersToCompute>();
  const unsigned thread = threadIdx.x % 128;
  // From one lane: ptxas then knows that what follows is the same in all of them.
  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128) - 1, 0);
  const Lane<C> lane(thread);
  const auto Q = smem->Q.by_columns();
  Rows<C> rows;
  Scores<C> S;
  std::uint32_t P[C::kBlockK / 16][4];  // of the warpgroup's keys

  // Gives a piece back for `groups` warpgroups, to both blocks of the cluster.
  const auto release = [&](unsigned number, int groups = 1) {
    if (static_cast<int>(thread) < groups * kClusterBlocks)
      arrive_in_cluster(pipeline.empty_barriers[pipeline.stage(number)],
                        static_cast<int>(thread) % kClusterBlocks);
  };
  constexpr int kEach = C::kOwnK ? 2 : 1;
  // S = Q K^T. The last piece is still read.
  const auto QK = [&](bool is_first) {
    unsigned number = piece + (C::kOwnK ? group : 0);
    FLASH_UNROLL
    for (int i = 0; i < C::kSlabs; ++i, number += kEach) {
      if (is_first) wait(Q_full[i], 0);
      pipeline.wait_full(number);
      const auto K = smem->slots[pipeline.stage(number)].K.by_columns(C::kOwnK ? 0 : group * 64);
      wgmma_fence();
      FLASH_UNROLL
      for (int k = 0; k < 4; ++k) wgmma<C::kBlockK, T>(flat(S), Q[4 * i + k], K[k], i > 0 || k > 0);
      wgmma_commit();
      if (i > 0) {
        wgmma_wait<1>();
        release(number - kEach, kEach);
      }
    }
    piece += C::kPiecesOfK;
  };
  const auto release_last_of_K = [&] { release(piece - kEach + (C::kOwnK ? group : 0), kEach); };
  // O += P V. Calls between(i) when piece i is under way, and all before it have been read.
  const auto PV = [&](auto between) {
    std::uint32_t weights[2][4];  // the piece before is still multiplied
    FLASH_UNROLL
    for (int i = 0; i < C::kPiecesOfV; ++i) {
      pipeline.wait_full(piece + i);
      const auto V = smem->slots[pipeline.stage(piece + i)].V[group].by_rows();
      const uint4 four = smem->P[i][thread];
      std::uint32_t(&A)[4] = weights[i % 2];
      A[0] = four.x, A[1] = four.y, A[2] = four.z, A[3] = four.w;
      wgmma_fence();
      wgmma<C::kHeadDim, T, true>(flat(rows.O), A, V[0], true);
      wgmma_commit();
      wgmma_wait<1>();
      if (i > 0) release(piece + i - 1);
      between(i);
    }
    wgmma_wait<0>();
    piece += C::kPiecesOfV;
    release(piece - 1);
  };

  float alpha[2], reference[2];
  // The maximum of a row in all keys of the step. It stays as it is while no weight is above 4.
  const auto find_maximum = [&](int n) {
    constexpr float kLargest = 2;  // in base 2
    const int j0 = n * C::kKeys + group * C::kBlockK;
    if (j0 + C::kBlockK > work.all_see) mask_scores<C>(S, work.keys, a.causal, work.i0, j0, lane);
    float largest[2];
    FLASH_UNROLL
    for (int r = 0; r < 2; ++r) {
      largest[r] = -INFINITY;
      FLASH_UNROLL
      for (int c = 0; c < C::kBlockK / 8; ++c)
        largest[r] = fmaxf(largest[r], fmaxf(S[c][2 * r], S[c][2 * r + 1]));
      largest[r] = warp_max<4>(largest[r]);
      if (lane.t2 == 0) of_rows[group][lane.row(r)] = largest[r];
    }
    sync_named(1, 256);
    FLASH_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float both = fmaxf(largest[r], of_rows[1 - group][lane.row(r)]), m_old = rows.m[r];
      if ((both - m_old) * a.scale > kLargest) rows.m[r] = both;
      const float safe = rows.m[r] == -INFINITY ? 0 : rows.m[r];
      reference[r] = safe * a.scale;
      alpha[r] = exp2_approximate((m_old - safe) * a.scale);
      rows.l[r] *= alpha[r];
    }
  };
  // P of 16 of the warpgroup's keys.
  const auto exponentials = [&](int k) {
    FLASH_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int r = i % 2;
      const float(&two)[4] = S[2 * k + i / 2];
      const float low = exp2_approximate(fmaf(two[2 * r], a.scale, -reference[r])),
                  high = exp2_approximate(fmaf(two[2 * r + 1], a.scale, -reference[r]));
      rows.l[r] += low + high;
      P[k][i] = pack<T>(low, high);
    }
  };
  const auto softmax = [&](int n, int i) {
    if (i == 0) find_maximum(n);
    if (i >= 1 && i <= C::kBlockK / 16) exponentials(i - 1);
  };
  // P for both warpgroups.
  const auto send_P = [&] {
    FLASH_UNROLL
    for (int k = 0; k < C::kBlockK / 16; ++k)
      smem->P[group * (C::kBlockK / 16) + k][thread] = {P[k][0], P[k][1], P[k][2], P[k][3]};
  };

  if (steps > 0) {
    QK(true);
    wgmma_wait<0>();
    release_last_of_K();
    FLASH_UNROLL
    for (int i = 0; i < C::kPiecesOfV; ++i) softmax(0, i);
    send_P();
    for (int n = 1; n < steps; ++n) {
      QK(false);
      sync_named(1, 256);  // P is there
      PV([&](int i) {
        if (i == 0) release_last_of_K();
        softmax(n, i);
      });
      sync_named(1, 256);  // P has been read
      send_P();
      if (__any_sync(kAllLanes, alpha[0] != 1 || alpha[1] != 1)) {
        mma::rescale(rows.O, 0, alpha[0]);
        mma::rescale(rows.O, 1, alpha[1]);
      }
    }
    sync_named(1, 256);
    PV([](int) {});

    // A row's sum is that of both warpgroups.
    float sum[2];
    FLASH_UNROLL
    for (int r = 0; r < 2; ++r) {
      sum[r] = warp_sum<4>(rows.l[r]);
      if (lane.t2 == 0) of_rows[group][lane.row(r)] = sum[r];
    }
    sync_named(1, 256);
    FLASH_UNROLL
    for (int r = 0; r < 2; ++r)
      rows.l[r] = lane.t2 == 0 ? sum[r] + of_rows[1 - group][lane.row(r)] : 0;
  }

  const int columns = 2 * part + group;
  store<C>(rows, out.parts[columns], columns == 0 ? a.lse : TensorView<float, 3>(), work, a.scale,
           lane);
  if constexpr (kClusterBlocks > 1) sync_cluster();  // the other block still arrives here
}

using Configs = Table<Config<384, 192, 128, 8>, Config<512, 256, 128, 8>, Config<768, 192, 64, 7>,
                      Config<1024, 256, 64, 5>>;

// How many heads' K and V the L2 cache has room for: an H100's has 50 MB.
inline int heads_of_section(const AttentionShape& shape) {
  constexpr Index kInCache = 32 << 20;
  const Index bytes = 4 * std::max<Index>(shape.keys, 1) * shape.head_dim;
  return static_cast<int>(std::clamp<Index>(kInCache / bytes, 1, shape.batch * shape.heads));
}

}  // namespace

FLASH_ENTER(registry, name) {
  const auto why_not = [](const AttentionProblem& problem) {
    return wide::why_not(problem, hopper::why_not);
  };
  enter(registry, name, why_not, []<class T>(const AttentionForward<T>& pass) {
    wide::run(pass, Configs(), [&]<class C>(C config) {
      launch("wide", wide_kernel<T, C>,
             launch_config(config, count_work<C>(pass.shape()) * C::kParts * 2, pass.stream),
             tensor_map(pass.q, C::kQueries), tensor_map(pass.k, 64), tensor_map(pass.v, 16),
             make_arguments(pass), wide::cut<C::kHeadDim>(pass.out),
             heads_of_section(pass.shape()));
    });
  });
}

}  // namespace flash::wide_heads
