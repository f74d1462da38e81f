// Rung 3: heads of 257 to 1024 columns, on mma.sync.
//
// New, beside 3_pipelined: a thread block has 256 columns of O, which are 128 registers of each
// thread. So 2 to 4 blocks share the same queries, and each computes all their scores. K and V come
// in slabs of 64 keys and 64 columns, one after the other through the same 4 places; Q stays.
//
// It is meant for Ampere and Ada. On Hopper rung 12 takes these heads. Measured on an H200, since
// no older GPU was at hand: 16 heads of 512, batch 4, 4096 keys, bfloat16: 145 TFLOP/s (each
// product counts once, and the kernel computes 1.5 times as many), 0.97 times as fast as PyTorch's
// memory-efficient kernel, with a mask 1.00 times. One head of 1024, batch 4, 1024 keys, half: 0.74
// and 0.93 times. Many heads of 768 and 1024: 0.34 to 0.51 times.
#include "common/cuda/async_copy.hpp"
#include "part3_flash_cuda/ladder/wide.hpp"

namespace flash::wide_pipelined {
namespace {

using namespace mma;

// Each warp has 16 queries.
template <int Width, int BlockQ>
struct Config {
  static constexpr int kWidth = Width, kHeadDim = 256, kBlockQ = BlockQ, kBlockK = 64,
                       kRowsOfWarp = 16, kThreads = 2 * BlockQ, kPlaces = 4;
  static constexpr int kParts = Width / kHeadDim, kSlabsOfK = Width / 64, kSlabsOfV = kHeadDim / 64;
  static constexpr bool kTestsAlpha = true;
  static constexpr std::size_t kSharedBytes = 2 * 64 * (kSlabsOfK * BlockQ + kPlaces * kBlockK);
};

// 64 columns of some rows, with the chunks of a row swizzled as in rung 2.
template <class T, int Rows>
struct Slab {
  T numbers[Rows][64];

  __device__ __forceinline__ T* chunk(unsigned row, unsigned c) {
    return &numbers[row][(c ^ (row & 7)) * kChunk];
  }
};

template <class T, class C>
struct Slabs {
  Slab<T, C::kBlockQ> Q[C::kSlabsOfK];
  Slab<T, C::kBlockK> places[C::kPlaces];
};

// Begins to copy a slab; zeros where there is nothing.
template <class C, class T, int kRows>
__device__ __forceinline__ void copy_slab(Slab<T, kRows>& slab, const Head<const T>& x, int row0,
                                          int column0) {
  FLASH_UNROLL
  for (int i = 0; i < kRows * 8; i += C::kThreads) {
    const int row = (i + static_cast<int>(threadIdx.x)) / 8, c = threadIdx.x % 8,
              column = column0 + c * kChunk;
    const bool exists = row0 + row < x.rows && column < x.columns;
    cp_async_16(slab.chunk(row, c), exists ? x.data + (row0 + row) * x.row_stride + column : x.data,
                exists ? 16 : 0);
  }
}

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    wide_pipelined_kernel(TensorView<const T, 4> q, TensorView<const T, 4> k,
                          TensorView<const T, 4> v, wide::Parts<T> out, TensorView<float, 3> lse,
                          float scale, bool causal) {
  const AttentionShape shape{q.extent(0), q.extent(1), q.extent(2), k.extent(2), q.extent(3)};
  const Work work(shape, causal, C::kBlockQ, static_cast<int>(blockIdx.x) / C::kParts, 1);
  const int part = static_cast<int>(blockIdx.x) % C::kParts;
  const Head<const T> q_head(q, work.b, work.h), k_head(k, work.b, work.h),
      v_head(v, work.b, work.h);
  using Shared = Slabs<T, C>;
  FLASH_DYNAMIC_SHARED(Shared, smem);
  const Lane<C> lane;
  const int steps = (work.some_see + C::kBlockK - 1) / C::kBlockK;

  // Slabs are numbered from the first step on: in each the slabs of K, then those of V. Each is a
  // group of copies; past the last step the groups are empty.
  int slab = 0;
  const auto fetch = [&](int number) {
    const int n = number / (C::kSlabsOfK + C::kSlabsOfV),
              i = number % (C::kSlabsOfK + C::kSlabsOfV);
    auto& place = smem->places[number % C::kPlaces];
    if (n < steps && i < C::kSlabsOfK) copy_slab<C>(place, k_head, n * C::kBlockK, 64 * i);
    if (n < steps && i >= C::kSlabsOfK)
      copy_slab<C>(place, v_head, n * C::kBlockK, part * C::kHeadDim + 64 * (i - C::kSlabsOfK));
    cp_async_commit();
  };
  // The next slab, when it is here.
  const auto take = [&]() -> Slab<T, C::kBlockK>& {
    cp_async_wait<C::kPlaces - 2>();
    __syncthreads();  // the copies of all threads; and nobody reads the slab before any more
    fetch(slab + C::kPlaces - 1);
    return smem->places[slab++ % C::kPlaces];
  };

  FLASH_UNROLL_BY(1)
  for (int i = 0; i < C::kSlabsOfK; ++i) copy_slab<C>(smem->Q[i], q_head, work.i0, 64 * i);
  for (int i = 0; i < C::kPlaces - 1; ++i) fetch(i);  // Q is in the group of the first slab

  Rows<C> rows;
  for (int n = 0; n < steps; ++n) {
    const int j0 = n * C::kBlockK;
    Scores<C> S = {};
    FLASH_UNROLL_BY(1)
    for (int i = 0; i < C::kSlabsOfK; ++i) {
      auto& K_smem = take();
      FLASH_UNROLL
      for (int c = 0; c < 4; ++c) {  // 16 columns
        std::uint32_t Q[4];
        ldmatrix(Q, smem->Q[i].chunk(lane.first_row + lane.id % 16, 2 * c + lane.id / 16));
        FLASH_UNROLL
        for (int m = 0; m < C::kBlockK / 8; m += 2) {  // two fragments of K, 8 keys each
          std::uint32_t K[4];
          ldmatrix(K,
                   K_smem.chunk(8 * m + lane.id / 16 * 8 + lane.id % 8, 2 * c + lane.id / 8 % 2));
          multiply_add<T>(S[m], Q, {K[0], K[1]});
          multiply_add<T>(S[m + 1], Q, {K[2], K[3]});
        }
      }
    }
    if (j0 + C::kBlockK > work.all_see) mask_scores<C>(S, work.keys, causal, work.i0, j0, lane);
    softmax_step<C>(S, rows, scale);
    std::uint32_t P[C::kBlockK / 16][4];
    FLASH_UNROLL
    for (int m = 0; m < C::kBlockK / 16; ++m) {
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i)
        P[m][i] = pack<T>(S[2 * m + i / 2][i % 2 * 2], S[2 * m + i / 2][i % 2 * 2 + 1]);
    }
    FLASH_UNROLL
    for (int i = 0; i < C::kSlabsOfV; ++i) {
      auto& V_smem = take();
      FLASH_UNROLL
      for (int m = 0; m < C::kBlockK / 16; ++m) {  // 16 keys
        FLASH_UNROLL
        for (int c = 0; c < 8; c += 2) {  // two fragments of V, 8 columns each
          std::uint32_t V[4];
          ldmatrix<true>(V, V_smem.chunk(16 * m + lane.id % 16, c + lane.id / 16));
          multiply_add<T>(rows.O[8 * i + c], P[m], {V[0], V[1]});
          multiply_add<T>(rows.O[8 * i + c + 1], P[m], {V[2], V[3]});
        }
      }
    }
  }
  store<C>(rows, out.parts[part], part == 0 ? lse : TensorView<float, 3>(), work, scale, lane);
}

// From 99 KB of shared memory on there is one for each head.
using Configs = Table<Config<512, 128>, Config<512, 64>, Config<1024, 64>, Config<1024, 32>>;

}  // namespace

FLASH_ENTER(registry, name) {
  const auto why_not = [](const AttentionProblem& problem) {
    return wide::why_not(problem, mma::why_not);
  };
  enter(registry, name, why_not, []<class T>(const AttentionForward<T>& pass) {
    wide::run(pass, Configs(), [&]<class C>(C config) {
      launch("wide_pipelined", wide_pipelined_kernel<T, C>,
             launch_config(config, count_work<C>(pass.shape()) * C::kParts, pass.stream), pass.q,
             pass.k, pass.v, wide::cut<C::kHeadDim>(pass.out), pass.lse, scale_in_base_2(pass),
             pass.options.causal);
    });
  });
}

}  // namespace flash::wide_pipelined
