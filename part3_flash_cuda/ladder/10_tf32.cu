// Rung 10: float32 on tensor cores, each product as three.
//
// Rungs 1 to 9 take 16 bits. The solution takes float32 and multiplies by FFMA, for which an A100
// has 19.5 TFLOP/s by its data sheet, and an H200 67. Tensor cores take float32's range as TF32, at
// 156 and 494 TFLOP/s, but read only 11 of its 24 bits: products of rounded numbers are wrong by up
// to 2^-10.
//
// New: each number is cut in two, x = big + small, and big and small have at most 11 bits each (up
// to 2^-23 of x). Then a b is big big + big small + small big, up to 2^-21 of it (small small is
// left out): three products of TF32, at a third of the 156 or 494.
// Sums would spoil that. A tensor core cuts off what it adds, always towards zero: a sum loses up
// to 2^-23 of itself with every instruction, and one over all keys drifts. So each sum in a tensor
// core is short. That of Q K^T ends after 16 columns, that of P V after the keys of a step, and
// FADD, which rounds to nearest, adds it to S or O. Small products come first, while the sum
// is small. float32.md has the bound of all this, and the other routes.
//
// P goes from the accumulators of S to the fragments of A without a shuffle. A lane has the scores
// of keys 2t and 2t + 1, and mma.m16n8k8 wants "columns" t and t + 4. Which keys these are does not
// matter to a sum, as long as V's rows are in the same order: the lane loads rows 2t and 2t + 1.
// In the same way it loads four neighbours of a row of Q and K, and two of V, at a time.
//
// The bottleneck, counted for heads of 64 (sm_80): in a step of 32 keys a warp has 384 mma.sync
// among 1700 instructions. 672 of these cut numbers in two, 3 a number. On an A100 the tensor cores
// need 8 clocks for each mma.sync, 3072, and are the limit. On Hopper they could do it in 1536,
// fewer than the scheduler needs to issue the rest.
// Measured on an H200 (batch 8, 1 head of 64) beside PyTorch's memory-efficient kernel, which has
// three products of TF32 too: 1024 keys 1.35 times as fast, 4096 and 16384 keys 1.9 to 2.2 times;
// heads of 128 1.1 to 1.5 times. The error is 0.4 to 0.6 of PyTorch's (relative, Frobenius).
#include "common/cuda/async_copy.hpp"
#include "part3_flash_cuda/ladder/fragments.hpp"

namespace flash::tf32 {
namespace {

using namespace mma;

template <int HeadDim, int BlockQ, int BlockK, int Warps, int Stages, int Blocks>
struct Config : mma::Config<HeadDim, BlockQ, BlockK, Warps, Stages, Blocks, true> {
  using Base = mma::Config<HeadDim, BlockQ, BlockK, Warps, Stages, Blocks, true>;
  static constexpr std::size_t kSharedBytes = 2 * Base::kSharedBytes;  // which is for 16 bits
};

// ---- Fragments of 8 columns ---------------------------------------------------------------------

// x = big + small, up to 2^-23 |x|: big is x rounded to the 11 bits of TF32. What is left is at
// most 2^12 units of the last place of x, and mma.sync reads 11 bits of it. Of infinity, of NaN and
// of what rounds to infinity, from 2^128 - 2^116 on, small is NaN.
template <int N>
struct Split {
  std::uint32_t big[N], small[N];

  __device__ __forceinline__ void set(int i, float x) {
    big[i] = (__float_as_uint(x) + 0x1000) & ~0x1fffu;
    small[i] = __float_as_uint(x - __uint_as_float(big[i]));
  }
};

constexpr int kFloats = 4;  // in a chunk of 16 bytes

template <int Rows, int Columns>
struct Tile {
  static constexpr int kRows = Rows;
  float numbers[Rows][Columns];

  // Chunk c has columns 4 c to 4 c + 3. Lanes that load together want 4 neighbouring chunks of rows
  // 2 i and 2 i + 1 (Q, K), or 2 of rows 0, 2, 4 and 6, or 1, 3, 5 and 7 (V).
  static __device__ __forceinline__ unsigned swizzle(unsigned row) {
    return (row & 6) ^ (row & 1) << 2;
  }
  __device__ __forceinline__ float* chunk(unsigned row, unsigned c) {
    return &numbers[row][(c ^ swizzle(row)) * kFloats];
  }
  // The same of chunk c + i, where c is a constant and a multiple of 4, and place = i ^
  // swizzle(row).
  __device__ __forceinline__ float* chunk(unsigned row, unsigned c, unsigned place) {
    return &numbers[row][((c & ~7u) + (place ^ (c & 4))) * kFloats];
  }
};
template <class C>
using QTile = Tile<C::kBlockQ, C::kHeadDim>;
template <class C>
using KTile = Tile<C::kBlockK, C::kHeadDim>;  // V's, too

// Begins to copy a tile, rows row0 and on of a head; zeros where there are none.
template <class C, class Tile>
__device__ __forceinline__ void copy_chunks(Tile& tile, const Head<const float>& x, int row0) {
  constexpr int kChunks = C::kHeadDim / kFloats, kStep = C::kThreads / kChunks;
  static_assert(Tile::kRows % kStep == 0);
  const int c = threadIdx.x % kChunks;
  FLASH_UNROLL
  for (int step = 0; step < Tile::kRows / kStep; ++step) {
    const int row = threadIdx.x / kChunks + step * kStep;
    const bool exists = row0 + row < x.rows && c * kFloats < x.columns;
    const Index place = exists ? (row0 + row) * x.row_stride + c * kFloats : 0;
    cp_async_16(tile.chunk(row, c), x.data + place, exists ? 16 : 0);
  }
}

// ---- Products -----------------------------------------------------------------------------------

// S = Q K^T for the warp's rows and the block's keys. A lane loads columns 4t to 4t + 3 of 16: of
// the first instruction they are the columns "t" and "t + 4", and then those of the second.
template <class C>
__device__ __forceinline__ void multiply_QK(Scores<C> (&S)[C::kStrips], QTile<C>& Q_smem,
                                            KTile<C>& K_smem, const Lane<C>& lane) {
  FLASH_UNROLL
  for (int strip = 0; strip < C::kStrips; ++strip) {
    FLASH_UNROLL
    for (int n = 0; n < C::kBlockK / 8; ++n) {
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i) S[strip][n][i] = 0;
    }
  }

  const unsigned place = lane.t2 / 2 ^ KTile<C>::swizzle(lane.g);
  FLASH_UNROLL_BY(C::kUnrollQK)
  for (int c = 0; c < C::kHeadDim / 16; ++c) {
    Split<4> Q[C::kStrips][2];
    FLASH_UNROLL
    for (int strip = 0; strip < C::kStrips; ++strip) {
      FLASH_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float4 x =
            *reinterpret_cast<const float4*>(Q_smem.chunk(lane.row(half, strip), 4 * c, place));
        Q[strip][0].set(half, x.x);
        Q[strip][0].set(half + 2, x.y);
        Q[strip][1].set(half, x.z);
        Q[strip][1].set(half + 2, x.w);
      }
    }
    FLASH_UNROLL
    for (int n = 0; n < C::kBlockK / 8; n += 2) {
      Split<2> K[2][2];
      FLASH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float4 x =
            *reinterpret_cast<const float4*>(K_smem.chunk(8 * (n + i) + lane.g, 4 * c, place));
        K[i][0].set(0, x.x);
        K[i][0].set(1, x.y);
        K[i][1].set(0, x.z);
        K[i][1].set(1, x.w);
      }
      float X[C::kStrips][2][4] = {};
      const auto multiply_add_all = [&](int step, auto q, auto k) {
        FLASH_UNROLL
        for (int strip = 0; strip < C::kStrips; ++strip) {
          FLASH_UNROLL
          for (int i = 0; i < 2; ++i)
            mma_m16n8k8_tf32(X[strip][i], Q[strip][step].*q, K[i][step].*k);
        }
      };
      FLASH_UNROLL
      for (int step = 0; step < 2; ++step) {
        multiply_add_all(step, &Split<4>::small, &Split<2>::big);
        multiply_add_all(step, &Split<4>::big, &Split<2>::small);
      }
      FLASH_UNROLL
      for (int step = 0; step < 2; ++step) multiply_add_all(step, &Split<4>::big, &Split<2>::big);
      FLASH_UNROLL
      for (int strip = 0; strip < C::kStrips; ++strip) {
        FLASH_UNROLL
        for (int i = 0; i < 2; ++i) {
          FLASH_UNROLL
          for (int j = 0; j < 4; ++j) S[strip][n + i][j] += X[strip][i][j];
        }
      }
    }
  }
}

// O += P V. In B's two fragments of 8 columns, lanes 4g to 4g + 3 have columns 2g and 2g + 1 of 16:
// a load gives both.
template <class C>
__device__ __forceinline__ void add_PV(Rows<C> (&rows)[C::kStrips],
                                       const Scores<C> (&P_float)[C::kStrips], KTile<C>& V_smem,
                                       const Lane<C>& lane) {
  constexpr int kSteps = C::kBlockK / 8;
  Split<4> P[C::kStrips][kSteps];
  FLASH_UNROLL
  for (int strip = 0; strip < C::kStrips; ++strip) {
    FLASH_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i) P[strip][k].set(i / 2 + i % 2 * 2, P_float[strip][k][i]);
    }
  }

  const unsigned place = lane.g / 2 ^ KTile<C>::swizzle(lane.t2);
  FLASH_UNROLL
  for (int n = 0; n < C::kHeadDim / 8; n += 2) {  // two fragments of V: 16 columns
    Split<2> V[kSteps][2];
    float X[C::kStrips][2][4] = {};
    const auto multiply_add_all = [&](int k, auto p, auto v) {
      FLASH_UNROLL
      for (int strip = 0; strip < C::kStrips; ++strip) {
        FLASH_UNROLL
        for (int i = 0; i < 2; ++i) mma_m16n8k8_tf32(X[strip][i], P[strip][k].*p, V[k][i].*v);
      }
    };
    FLASH_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      FLASH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float2 x = *reinterpret_cast<const float2*>(
            V_smem.chunk(8 * k + lane.t2 + i, 2 * n ^ 4 * i, place) + lane.g % 2 * 2);
        V[k][0].set(i, x.x);
        V[k][1].set(i, x.y);
      }
      multiply_add_all(k, &Split<4>::small, &Split<2>::big);
      multiply_add_all(k, &Split<4>::big, &Split<2>::small);
    }
    FLASH_UNROLL
    for (int k = 0; k < kSteps; ++k) multiply_add_all(k, &Split<4>::big, &Split<2>::big);
    FLASH_UNROLL
    for (int strip = 0; strip < C::kStrips; ++strip) {
      FLASH_UNROLL
      for (int i = 0; i < 2; ++i) {
        FLASH_UNROLL
        for (int j = 0; j < 4; ++j) rows[strip].O[n + i][j] += X[strip][i][j];
      }
    }
  }
}

// Ends all rows, and stores O: a lane has columns 4t to 4t + 3 of each 16.
template <class C>
__device__ __forceinline__ void store(const Rows<C> (&rows)[C::kStrips],
                                      const TensorView<float, 4>& out,
                                      const TensorView<float, 3>& lse, const Work& work,
                                      float scale, const Lane<C>& lane) {
  FLASH_UNROLL
  for (int strip = 0; strip < C::kStrips; ++strip) {
    FLASH_UNROLL
    for (int half = 0; half < 2; ++half) {
      const RowEnd end = end_row<C>(half, rows[strip], scale);
      const int query = work.i0 + lane.row(half, strip);
      store_lse<C>(end.lse, query, lse, work, lane);
      if (query >= out.extent(2)) continue;
      float* const row = &out(work.b, work.h, query, 0);
      FLASH_UNROLL
      for (int n = 0; n < C::kHeadDim / 8; n += 2) {
        const auto& first = rows[strip].O[n];
        const auto& second = rows[strip].O[n + 1];
        if (const int column = 8 * n + 2 * lane.t2; column < out.extent(3))
          *reinterpret_cast<float4*>(row + column) =
              float4{first[2 * half] * end.inverse, second[2 * half] * end.inverse,
                     first[2 * half + 1] * end.inverse, second[2 * half + 1] * end.inverse};
      }
    }
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    tf32_kernel(TensorView<const float, 4> q, TensorView<const float, 4> k,
                TensorView<const float, 4> v, TensorView<float, 4> out, TensorView<float, 3> lse,
                float scale, bool causal) {
  const AttentionShape shape{q.extent(0), q.extent(1), q.extent(2), k.extent(2), q.extent(3)};
  const Work work(shape, causal, C::kBlockQ);
  const Head<const float> q_head(q, work.b, work.h), k_head(k, work.b, work.h),
      v_head(v, work.b, work.h);
  static_assert(C::kStages >= 2);
  using Tiles = mma::Tiles<QTile<C>, KTile<C>, C::kStages>;
  FLASH_DYNAMIC_SHARED(Tiles, smem);
  const Lane<C> lane;
  Rows<C> rows[C::kStrips];

  // Step n's K and V, a group of copies; past the last step the groups are empty.
  const int steps = (work.some_see + C::kBlockK - 1) / C::kBlockK;
  const auto fetch = [&](int n) {
    if (n < steps) {
      copy_chunks<C>(smem->K[n % C::kStages], k_head, n * C::kBlockK);
      copy_chunks<C>(smem->V[n % C::kStages], v_head, n * C::kBlockK);
    }
    cp_async_commit();
  };
  copy_chunks<C>(smem->Q, q_head, work.i0);  // in the first group
  for (int n = 0; n < C::kStages - 1; ++n) fetch(n);

  for (int n = 0; n < steps; ++n) {
    const int j0 = n * C::kBlockK;
    // All copies but the newest kStages - 2 groups are done: Q and this step's K and V are here.
    cp_async_wait<C::kStages - 2>();
    __syncthreads();  // those of all threads; and nobody reads step n - 1 any more
    fetch(n + C::kStages - 1);
    Scores<C> S[C::kStrips];
    multiply_QK<C>(S, smem->Q, smem->K[n % C::kStages], lane);
    if (j0 + C::kBlockK > work.all_see) mask_scores<C>(S, work.keys, causal, work.i0, j0, lane);
    softmax_step<C, true>(S, rows, scale);
    add_PV<C>(rows, S, smem->V[n % C::kStages], lane);
  }
  // `work` again, from extents of which the compiler does not know that they are the same: kept
  // over the loop, it would take registers that are short there.
  const AttentionShape same{out.extent(0), out.extent(1), out.extent(2), k.extent(2), q.extent(3)};
  store<C>(rows, out, lse, Work(same, causal, C::kBlockQ), scale, lane);
}

// ./lab tune: Config<D, 64|128, 16|32|64, 4|8, 2|3|4, 1|2>
using Configs =
    Table<Config<64, 128, 32, 4, 2, 2>, Config<128, 64, 32, 4, 2, 2>, Config<256, 64, 16, 4, 2, 1>>;

void forward(const AttentionForward<float>& pass) {
  run("tf32", pass, Configs(), []<class C>(C) { return tf32_kernel<C>; });
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.forward.add({.name = name,
                        .device = DeviceKind::kGpu,
                        .run = {.float32 = forward},
                        .unsupported = why_not,
                        .finite_inputs = true});
}

}  // namespace flash::tf32
