// What the rungs on mma.sync share: the numbers of a configuration, what a warp keeps of its rows
// in fragments of 16 x 8, and the steps on them that no rung changes.
//
// A warp owns kStrips strips of 16 queries. A lane has parts of two rows of each strip: rows g and
// g + 8, where g = lane / 4. Four lanes share a row: each of them has 2 of every 8 neighbouring
// scores, or columns of O (common/cuda/tensor_core.hpp says which).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "common/checks.hpp"
#include "common/cuda/async_copy.hpp"
#include "common/cuda/configurations.hpp"
#include "common/cuda/tensor_core.hpp"
#include "common/cuda/tile.hpp"
#include "common/registry.hpp"

namespace flash::mma {

inline constexpr int kChunk = 8;  // numbers of 16 bits in 16 bytes, which a lane copies at a time

// A thread block owns kBlockQ queries and takes kBlockK keys a step; shared memory holds K and V of
// kStages steps. kBlocks thread blocks have to fit on a multiprocessor, which limits a thread's
// registers.
template <int HeadDim, int BlockQ, int BlockK, int Warps, int Stages, int Blocks,
          bool TestsAlpha = false>
struct Config {
  static constexpr int kHeadDim = HeadDim, kBlockQ = BlockQ, kBlockK = BlockK, kWarps = Warps,
                       kStages = Stages, kBlocks = Blocks;
  static constexpr bool kTestsAlpha = TestsAlpha;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static constexpr int kUnrollQK = kHeadDim == 128 ? 4 : kHeadDim / 16;  // more, and ptxas spills
#else
  static constexpr int kUnrollQK = kHeadDim == 128 ? 2 : kHeadDim / 16;
#endif
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kRowsOfWarp = kBlockQ / kWarps;
  static constexpr int kStrips = kRowsOfWarp / 16;
  static constexpr std::size_t kSharedBytes = 2 * kHeadDim * (kBlockQ + 2 * kStages * kBlockK);
  static_assert(kStrips * 16 * kWarps == kBlockQ && kBlockK % 16 == 0 && kHeadDim % 64 == 0);
  static_assert(kBlockQ % (kThreads * kChunk / kHeadDim) == 0 &&
                kBlockK % (kThreads * kChunk / kHeadDim) == 0);
};

// A strip's scores of a step: S[n][i] is element i of the fragment with keys 8 n to 8 n + 7.
template <class C>
using Scores = float[C::kBlockK / 8][4];

// What a lane keeps of its two rows of a strip, from the first key to the last. The index 0 or 1
// (`half`) stands for row g or g + 8.
template <class C>
struct Rows {
  float m[2] = {-INFINITY, -INFINITY};  // the largest score so far, not scaled
  float l[2] = {};                      // this lane's part of the sum of P
  float rounding[2] = {};               // what O is divided by beyond l (from rung 8 on)
  float O[C::kHeadDim / 8][4] = {};
};

// Where a lane is: its warp's first row in the block of queries, its row g and its column 2t in a
// fragment.
template <class C>
struct Lane {
  int first_row;
  unsigned id;
  int g, t2;

  // Unsigned: a signed remainder takes more registers, enough to make the largest kernels spill.
  __device__ __forceinline__ explicit Lane(unsigned thread = threadIdx.x)
      : first_row(thread / kWarpSize * C::kRowsOfWarp),
        id(thread % kWarpSize),
        g(thread % kWarpSize / 4),
        t2(thread % 4 * 2) {}

  __device__ __forceinline__ int row(int half, int strip = 0) const {
    return first_row + 16 * strip + 8 * half + g;
  }
};

// A thread block's work: some queries of a head. With a causal mask the last queries of all heads
// come first: they see the most keys, and short work fills the end. A kernel may ask for this order
// among `section` heads at a time, whose K and V then stay in the L2 cache. Without a mask the
// blocks of a head are neighbours, so that they find its K and V there.
struct Work {
  int b, h, i0, keys;
  int all_see, some_see;  // all queries see the keys before all_see, some those before some_see

  Work() = default;

  __device__ __forceinline__ Work(const AttentionShape& shape, bool causal, int block_q)
      : Work(shape, causal, block_q, blockIdx.x, static_cast<int>(shape.batch * shape.heads)) {}

  __device__ __forceinline__ Work(const AttentionShape& shape, bool causal, int block_q, int number,
                                  int section) {
    const int queries = static_cast<int>(shape.queries), blocks = (queries + block_q - 1) / block_q,
              heads = static_cast<int>(shape.batch * shape.heads);
    int head, block;
    if (causal) {
      const int first = number / (section * blocks) * section, i = number % (section * blocks),
                here = heads - first < section ? heads - first : section;
      head = first + i % here;
      block = blocks - 1 - i / here;
    } else {
      head = number / blocks;
      block = number % blocks;
    }
    *this = of_block(shape, causal, block_q, head, block);
  }

  __device__ __forceinline__ static Work of_block(const AttentionShape& shape, bool causal,
                                                  int block_q, int head, int block) {
    const int queries = static_cast<int>(shape.queries), heads = static_cast<int>(shape.heads);
    Work work;
    work.keys = static_cast<int>(shape.keys);
    work.i0 = block * block_q;
    work.b = head / heads;
    work.h = head % heads;
    work.all_see = static_cast<int>(shape.visible_keys(work.i0, causal));
    const int end = work.i0 + block_q < queries ? work.i0 + block_q : queries;
    work.some_see = static_cast<int>(shape.visible_keys(end - 1, causal));
    return work;
  }
};

// ---- Tiles --------------------------------------------------------------------------------------
//
// Each rung has its `Tile`, a matrix of 16-bit numbers in shared memory. tile.chunk(row, c) is the
// address of columns 8 c to 8 c + 7 of a row.

// What a thread block has in shared memory: a tile of Q, and tiles of K and V for each stage.
template <class QTile, class KTile, int kStages>
struct Tiles {
  QTile Q;
  KTile K[kStages], V[kStages];
};

// Loads rows row0 to row0 + Tile::kRows - 1 of a head; zeros where there are none.
template <class C, class Tile, class T>
__device__ void load_chunks(Tile& tile, const Head<const T>& x, int row0) {
  constexpr int kChunks = C::kHeadDim / kChunk;
  const int c = threadIdx.x % kChunks;
  FLASH_UNROLL_BY(4)
  for (int row = threadIdx.x / kChunks; row < Tile::kRows; row += C::kThreads / kChunks) {
    const bool exists = row0 + row < x.rows && c * kChunk < x.columns;
    *reinterpret_cast<uint4*>(tile.chunk(row, c)) =
        exists ? *reinterpret_cast<const uint4*>(x.data + (row0 + row) * x.row_stride + c * kChunk)
               : uint4{};
  }
}

// Begins to copy rows row0 to row0 + kRows - 1 of a head; zeros where there are none. In a whole
// tile, as all but the last of a head are, a pointer moves on, and no row is tested.
template <class C, int kRows, class Tile, class T>
__device__ __forceinline__ void copy_chunks(Tile&& tile, const Head<const T>& x, int row0) {
  constexpr int kChunks = C::kHeadDim / kChunk, kStep = C::kThreads / kChunks;
  const int row = threadIdx.x / kChunks, c = threadIdx.x % kChunks;
  const T* from = x.data + (row0 + row) * x.row_stride + c * kChunk;
  if (row0 + kRows <= x.rows && x.columns == C::kHeadDim) {
    FLASH_UNROLL
    for (int step = 0; step < kRows / kStep; ++step, from += kStep * x.row_stride)
      cp_async_16(tile.chunk(row + step * kStep, c), from);
  } else {
    FLASH_UNROLL
    for (int step = 0; step < kRows / kStep; ++step, from += kStep * x.row_stride) {
      const bool exists = row0 + row + step * kStep < x.rows && c * kChunk < x.columns;
      cp_async_16(tile.chunk(row + step * kStep, c), exists ? from : x.data, exists ? 16 : 0);
    }
  }
}

// ---- Products -----------------------------------------------------------------------------------

template <class T>
__device__ __forceinline__ void multiply_add(float (&d)[4], const std::uint32_t (&a)[4],
                                             const std::uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, Half>)
    mma_m16n8k16_half(d, a, b);
  else
    mma_m16n8k16_bfloat16(d, a, b);
}

// S = Q K^T for the warp's rows and the block's keys.
template <class C, class T, class QTile, class KTile>
__device__ __forceinline__ void multiply_QK(Scores<C> (&S)[C::kStrips], QTile& Q_smem,
                                            KTile& K_smem, const Lane<C>& lane) {
  FLASH_UNROLL
  for (int strip = 0; strip < C::kStrips; ++strip) {
    FLASH_UNROLL
    for (int n = 0; n < C::kBlockK / 8; ++n) {
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i) S[strip][n][i] = 0;
    }
  }

  FLASH_UNROLL_BY(C::kUnrollQK)
  for (int k = 0; k < C::kHeadDim / 16; ++k) {
    std::uint32_t Q[C::kStrips][4];
    FLASH_UNROLL
    for (int strip = 0; strip < C::kStrips; ++strip)
      ldmatrix(Q[strip],
               Q_smem.chunk(lane.first_row + 16 * strip + lane.id % 16, 2 * k + lane.id / 16));
    FLASH_UNROLL
    for (int n = 0; n < C::kBlockK / 8; n += 2) {  // two fragments of K, 8 keys each
      std::uint32_t K[4];
      ldmatrix(K, K_smem.chunk(8 * n + lane.id / 16 * 8 + lane.id % 8, 2 * k + lane.id / 8 % 2));
      const std::uint32_t first[2] = {K[0], K[1]}, second[2] = {K[2], K[3]};
      FLASH_UNROLL
      for (int strip = 0; strip < C::kStrips; ++strip) {
        multiply_add<T>(S[strip][n], Q[strip], first);
        multiply_add<T>(S[strip][n + 1], Q[strip], second);
      }
    }
  }
}

// The two numbers of a register, as float32.
template <class T>
__device__ __forceinline__ float2 unpack(std::uint32_t both) {
  if constexpr (std::is_same_v<T, Half>)
    return __half22float2(reinterpret_cast<const __half2&>(both));
  else
    return {__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u)};
}

// O += P V. The two scores that a lane gets from Q K^T are those that it has to give to P V, so P
// never leaves the registers.
template <class C, class T, class Tile>
__device__ __forceinline__ void add_PV(Rows<C> (&rows)[C::kStrips],
                                       const Scores<C> (&P_float)[C::kStrips], Tile& V_smem,
                                       const Lane<C>& lane) {
  FLASH_UNROLL
  for (int k = 0; k < C::kBlockK / 16; ++k) {  // 16 keys
    std::uint32_t P[C::kStrips][4];
    FLASH_UNROLL
    for (int strip = 0; strip < C::kStrips; ++strip) {
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i)
        P[strip][i] = pack<T>(P_float[strip][2 * k + i / 2][i % 2 * 2],
                              P_float[strip][2 * k + i / 2][i % 2 * 2 + 1]);
    }
    FLASH_UNROLL
    for (int n = 0; n < C::kHeadDim / 8; n += 2) {  // two fragments of V, 8 columns each
      std::uint32_t V[4];
      ldmatrix<true>(V, V_smem.chunk(16 * k + lane.id % 16, n + lane.id / 16));
      const std::uint32_t first[2] = {V[0], V[1]}, second[2] = {V[2], V[3]};
      FLASH_UNROLL
      for (int strip = 0; strip < C::kStrips; ++strip) {
        multiply_add<T>(rows[strip].O[n], P[strip], first);
        multiply_add<T>(rows[strip].O[n + 1], P[strip], second);
      }
    }
  }
}

// ---- Softmax ------------------------------------------------------------------------------------

// The scores of keys that a row does not see become -INFINITY.
template <class C>
__device__ __forceinline__ void mask_scores(Scores<C>& S, int keys, bool causal, int i0, int j0,
                                            const Lane<C>& lane, int strip = 0) {
  FLASH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int query = i0 + lane.row(half, strip);
    const int sees = (causal && query + 1 < keys ? query + 1 : keys) - j0 - lane.t2;
    FLASH_UNROLL
    for (int n = 0; n < C::kBlockK / 8; ++n) {
      FLASH_UNROLL
      for (int i = 0; i < 2; ++i)
        if (8 * n + i >= sees) S[n][2 * half + i] = -INFINITY;
    }
  }
}
template <class C, int kStrips>
__device__ __forceinline__ void mask_scores(Scores<C> (&S)[kStrips], int keys, bool causal, int i0,
                                            int j0, const Lane<C>& lane) {
  FLASH_UNROLL
  for (int strip = 0; strip < kStrips; ++strip)
    mask_scores<C>(S[strip], keys, causal, i0, j0, lane, strip);
}

// O of rows g (`half` 0) or g + 8 (1) times alpha.
template <int kColumns>
__device__ __forceinline__ void rescale(float (&O)[kColumns][4], int half, float alpha) {
  FLASH_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    FLASH_UNROLL
    for (int i = 2 * half; i < 2 * half + 2; ++i) O[n][i] *= alpha;
  }
}

// Online softmax of row g (`half` 0) or g + 8 (1): m takes in the new scores, S becomes
// P = exp2(scale * (S - m)), and l takes in its sum. `scale` is positive and in base 2. Returns
// alpha, by which O has to be multiplied. Without kDifferenceFirst, P takes one operation less, and
// is wrong by up to 2^-24 |scale * m|, which is too small to show in 16 bits.
template <class C, bool kDifferenceFirst>
__device__ __forceinline__ float softmax_row(int half, Scores<C>& S, Rows<C>& rows, float scale) {
  float& m = rows.m[half];
  float m_new = m;
  FLASH_UNROLL
  for (int n = 0; n < C::kBlockK / 8; ++n)
    m_new = fmaxf(m_new, fmaxf(S[n][2 * half], S[n][2 * half + 1]));
  m_new = warp_max<4>(m_new);
  const float safe = m_new == -INFINITY ? 0 : m_new, reference = safe * scale;
  // The difference first: fused, m * scale - reference would not be 0 where m stays as it is.
  const float alpha = exp2_approximate((m - safe) * scale);
  m = m_new;
  float sum = 0;
  FLASH_UNROLL
  for (int n = 0; n < C::kBlockK / 8; ++n) {
    FLASH_UNROLL
    for (int i = 2 * half; i < 2 * half + 2; ++i)
      sum += S[n][i] = exp2_approximate(kDifferenceFirst ? (S[n][i] - safe) * scale
                                                         : fmaf(S[n][i], scale, -reference));
  }
  rows.l[half] = rows.l[half] * alpha + sum;
  return alpha;
}

// Online softmax of a strip; O is rescaled.
template <class C, bool kDifferenceFirst = false>
__device__ __forceinline__ void softmax_step(Scores<C>& S, Rows<C>& rows, float scale) {
  float alpha[2];
  FLASH_UNROLL
  for (int half = 0; half < 2; ++half) {
    alpha[half] = softmax_row<C, kDifferenceFirst>(half, S, rows, scale);
    if constexpr (!C::kTestsAlpha) rescale(rows.O, half, alpha[half]);
  }
  // Most steps find no larger score in any of the warp's rows.
  if constexpr (C::kTestsAlpha) {
    if (!__any_sync(kAllLanes, alpha[0] != 1 || alpha[1] != 1)) return;
    rescale(rows.O, 0, alpha[0]);
    rescale(rows.O, 1, alpha[1]);
  }
}
template <class C, bool kDifferenceFirst = false, int kStrips>
__device__ __forceinline__ void softmax_step(Scores<C> (&S)[kStrips], Rows<C> (&rows)[kStrips],
                                             float scale) {
  FLASH_UNROLL
  for (int strip = 0; strip < kStrips; ++strip)
    softmax_step<C, kDifferenceFirst>(S[strip], rows[strip], scale);
}

// What ends row g (`half` 0) or g + 8 (1): 1 / l, by which O has to be multiplied, and
// lse = scale * m + log(l) in base e. A row with no key gets 0 and -inf.
struct RowEnd {
  float inverse, lse;
};

template <class C>
__device__ __forceinline__ RowEnd end_row(int half, const Rows<C>& rows, float scale) {
  const float l = warp_sum<4>(rows.l[half]),
              rounded_l = warp_sum<4>(rows.l[half] + rows.rounding[half]);
  return l == 0 ? RowEnd{0, -INFINITY}
                : RowEnd{1 / rounded_l, (rows.m[half] * scale + log2f(l)) * kLn2};
}

template <class C>
__device__ __forceinline__ void store_lse(float value, int query, const TensorView<float, 3>& lse,
                                          const Work& work, const Lane<C>& lane) {
  if (lane.t2 == 0 && query < lse.extent(2)) lse(work.b, work.h, query) = value;
}

// The four lanes of a row exchange 4 words each: lane t gets word t of all four lanes, in their
// order.
__device__ __forceinline__ void exchange(std::uint32_t (&words)[4], unsigned lane) {
  FLASH_UNROLL
  for (int distance = 1; distance <= 2; ++distance) {
    const bool upper = (lane & distance) != 0;
    FLASH_UNROLL
    for (int i = 0; i < 2; ++i) {
      std::uint32_t& first = words[distance == 1 ? 2 * i : i];
      std::uint32_t& second = words[distance == 1 ? 2 * i + 1 : i + 2];
      const std::uint32_t keep = upper ? second : first,
                          got = __shfl_xor_sync(kAllLanes, upper ? first : second, distance);
      first = upper ? got : keep;
      second = upper ? keep : got;
    }
  }
}

// Ends a strip's rows, and stores O. A lane has 2 neighbouring columns of each fragment. Four lanes
// exchange theirs, so that each stores 16 bytes and not 4 (rung 3: up to 9 % faster).
template <class C, class T>
__device__ __forceinline__ void store(const Rows<C>& rows, const TensorView<T, 4>& out,
                                      const TensorView<float, 3>& lse, const Work& work,
                                      float scale, const Lane<C>& lane, int strip = 0) {
  FLASH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const RowEnd end = end_row<C>(half, rows, scale);
    const int query = work.i0 + lane.row(half, strip);
    store_lse<C>(end.lse, query, lse, work, lane);
    const bool inside = query < out.extent(2);
    T* const row = inside ? &out(work.b, work.h, query, 4 * lane.t2) : nullptr;
    FLASH_UNROLL
    for (int n = 0; n < C::kHeadDim / 8; n += 4) {
      std::uint32_t words[4];
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i)
        words[i] = pack<T>(rows.O[n + i][2 * half] * end.inverse,
                           rows.O[n + i][2 * half + 1] * end.inverse);
      exchange(words, lane.id);
      if (inside && 8 * n + 4 * lane.t2 < out.extent(3))
        *reinterpret_cast<uint4*>(row + 8 * n) = {words[0], words[1], words[2], words[3]};
    }
  }
}
template <class C, class T, int kStrips>
__device__ __forceinline__ void store(const Rows<C> (&rows)[kStrips], const TensorView<T, 4>& out,
                                      const TensorView<float, 3>& lse, const Work& work,
                                      float scale, const Lane<C>& lane) {
  FLASH_UNROLL
  for (int strip = 0; strip < kStrips; ++strip)
    store<C>(rows[strip], out, lse, work, scale, lane, strip);
}

// ---- Around the kernels -------------------------------------------------------------------------

// Why neither these kernels nor the bonus' take a problem, in words, but for its scale.
inline std::string why_not_unscaled(const AttentionProblem& problem) {
  const AttentionShape& shape = problem.shape;
  if (device::count() > 0 && device::compute_capability() < 80)
    return "the GPU has compute capability " + std::to_string(device::compute_capability()) +
           "; it must be at least 80 (Ampere)";
  if (shape.head_dim % kChunk != 0)
    return "head_dim is " + std::to_string(shape.head_dim) + "; it must be a multiple of 8";
  if (std::string why = why_above("head_dim", shape.head_dim, 256); !why.empty()) return why;
  // Rows are counted in 32 bits, up to the end of a block.
  constexpr Index kMostRows = std::numeric_limits<int>::max() - 256;
  for (const auto& [name, rows] : {std::pair{"queries", shape.queries}, {"keys", shape.keys}})
    if (std::string why = why_above(name, rows, kMostRows); !why.empty()) return why;
  return why_not_in_chunks(problem, 16);
}

// Why the kernels do not take a problem; "" when they take it.
inline std::string why_not(const AttentionProblem& problem) {
  const double scale = problem.options.scale.value_or(1);
  const auto in_base_2 = static_cast<float>(scale * kLog2E);
  if (std::isfinite(scale) && !(in_base_2 > 0 && std::isfinite(in_base_2)))
    return "scale is " + std::to_string(scale) + "; it must be a float above 0";
  return why_not_unscaled(problem);
}

// How much work there is: blocks of kBlockQ queries, of all heads.
template <class C>
Index count_work(const AttentionShape& shape) {
  return shape.batch * shape.heads * ((shape.queries + C::kBlockQ - 1) / C::kBlockQ);
}

template <class C>
LaunchConfig launch_config(C, Index blocks, Stream stream) {
  return {.grid = grid_size(blocks),
          .block = static_cast<unsigned>(C::kThreads),
          .shared_bytes = C::kSharedBytes,
          .stream = stream};
}

template <class T>
float scale_in_base_2(const AttentionForward<T>& pass) {
  return static_cast<float>(attention_scale(pass.options, pass.shape().head_dim) * kLog2E);
}

// Launches the kernel with the first configuration of the table that is wide enough for the head
// and fits into shared memory.
template <class Table, class T, class KernelOf>
void run(const char* name, const AttentionForward<T>& pass, Table table, KernelOf kernel_of) {
  const AttentionShape shape = check_attention(pass);
  with_config(table, shape.head_dim, [&]<class C>(C config) {
    launch(name, kernel_of(config), launch_config(config, count_work<C>(shape), pass.stream),
           pass.q, pass.k, pass.v, pass.out, pass.lse, scale_in_base_2(pass), pass.options.causal);
  });
}

// Enters a rung for both types of 16 bits: `forward` takes a pass of either. `best` as in Entry.
template <class Forward>
void enter(Registry& registry, const char* name, std::string (*why_not)(const AttentionProblem&),
           Forward forward, bool best = true) {
  registry.forward.add({.name = name,
                        .device = DeviceKind::kGpu,
                        .run = {.float16 = forward, .bfloat16 = forward},
                        .unsupported = why_not,
                        .best = best,
                        .finite_inputs = true});
}

}  // namespace flash::mma
