// What the rungs on mma.sync share: the numbers of a configuration, what a warp keeps of its rows
// in fragments of 16 x 8, and the steps on them that no rung changes.
//
// A warp owns kTiles times 16 queries. Of each 16 a lane has parts of two rows, g and g + 8, where
// g = lane / 4. Four lanes share a row: of every 8 neighbouring scores, or columns of O, each of
// them has 2 (common/cuda/tensor_core.hpp says which).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "common/checks.hpp"
#include "common/cuda/configurations.hpp"
#include "common/cuda/tensor_core.hpp"
#include "common/cuda/tile.hpp"
#include "common/registry.hpp"

namespace flash::mma {

inline constexpr int kChunk = 8;  // elements of 16 bits in 16 bytes: what one lane copies or loads

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
  static constexpr int kTiles = kRowsOfWarp / 16;
  static constexpr int kQSize = kBlockQ * kHeadDim, kKSize = kBlockK * kHeadDim;
  static constexpr std::size_t kSharedBytes = 2 * (kQSize + 2 * kStages * kKSize);
  static_assert(kTiles * 16 * kWarps == kBlockQ && kBlockK % 16 == 0 && kHeadDim % 64 == 0);
  static_assert(kBlockQ % (kThreads * kChunk / kHeadDim) == 0 &&
                kBlockK % (kThreads * kChunk / kHeadDim) == 0);
};

// Scores of a step: S[tile][keys 8 n to 8 n + 7][element of the fragment].
template <class C>
using Scores = float[C::kTiles][C::kBlockK / 8][4];

// What a lane keeps of its rows from the first key to the last. The index 0 or 1 (`half`) stands
// for row g or g + 8.
template <class C>
struct Rows {
  float m[C::kTiles][2];       // the largest score so far, not scaled
  float l[C::kTiles][2] = {};  // this lane's part of the sum of P
  float rounding[C::kTiles][2] = {};  // what O is divided by beyond l (from step 8 on)
  float O[C::kTiles][C::kHeadDim / 8][4] = {};

  __device__ __forceinline__ Rows() {
    FLASH_UNROLL
    for (int tile = 0; tile < C::kTiles; ++tile) m[tile][0] = m[tile][1] = -INFINITY;
  }
};

// Where a lane is: its warp's first row in the block of queries, its row g and its column 2t in a
// fragment.
template <class C>
struct Lane {
  int first_row;
  unsigned lane;
  int g, t2;

  // Unsigned: a signed remainder takes more registers, enough to make the largest kernels spill.
  __device__ __forceinline__ explicit Lane(unsigned thread = threadIdx.x)
      : first_row(thread / kWarpSize * C::kRowsOfWarp),
        lane(thread % kWarpSize),
        g(thread % kWarpSize / 4),
        t2(thread % 4 * 2) {}

  __device__ __forceinline__ int row(int tile, int half) const {
    return first_row + 16 * tile + 8 * half + g;
  }
};

// A tile of the work: some queries of a head. With a causal mask the last queries of all heads come
// first: they see the most keys, and short tiles fill the end. A kernel may ask for this order
// among `section` heads at a time, whose K and V then stay in the L2 cache. Without a mask a head's
// tiles are neighbours, so that they find its K and V there.
struct Work {
  int b, h, i0, keys;
  int all_see, some_see;  // all queries see the keys before all_see, some those before some_see

  Work() = default;

  __device__ __forceinline__ Work(const AttentionShape& shape, bool causal, int block_q)
      : Work(shape, causal, block_q, blockIdx.x, static_cast<int>(shape.batch * shape.heads)) {}

  __device__ __forceinline__ Work(const AttentionShape& shape, bool causal, int block_q, int tile,
                                  int section)
      : keys(static_cast<int>(shape.keys)) {
    const int queries = static_cast<int>(shape.queries), blocks = (queries + block_q - 1) / block_q,
              heads = static_cast<int>(shape.batch * shape.heads);
    int head, block;
    if (causal) {
      const int first = tile / (section * blocks) * section, i = tile % (section * blocks),
                here = heads - first < section ? heads - first : section;
      head = first + i % here;
      block = blocks - 1 - i / here;
    } else {
      head = tile / blocks;
      block = tile % blocks;
    }
    i0 = block * block_q;
    b = head / static_cast<int>(shape.heads);
    h = head % static_cast<int>(shape.heads);
    all_see = static_cast<int>(shape.visible_keys(i0, causal));
    some_see = static_cast<int>(
        shape.visible_keys((i0 + block_q < queries ? i0 + block_q : queries) - 1, causal));
  }
};

// ---- Tiles --------------------------------------------------------------------------------------
//
// `Tile` is a matrix of 16-bit numbers in shared memory, a row of kHeadDim after the other;
// tile.chunk(row, c) is the address of columns 8 c to 8 c + 7 of a row.

// Loads rows row0 to row0 + kRows - 1 of a head; zeros where there are none.
template <class C, int kRows, class Tile, class T>
__device__ void load_chunks(const Tile& tile, const Head<const T>& x, int row0) {
  constexpr int kChunks = C::kHeadDim / kChunk;
  const int c = threadIdx.x % kChunks;
  FLASH_UNROLL_BY(4)
  for (int row = threadIdx.x / kChunks; row < kRows; row += C::kThreads / kChunks) {
    const bool exists = row0 + row < x.rows && c * kChunk < x.columns;
    *reinterpret_cast<uint4*>(tile.chunk(row, c)) =
        exists ? *reinterpret_cast<const uint4*>(x.data + (row0 + row) * x.row_stride + c * kChunk)
               : uint4{};
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
template <class C, class T, class Tile>
__device__ __forceinline__ void multiply_QK(Scores<C>& S, const Tile& Q_smem, const Tile& K_smem,
                                            const Lane<C>& me) {
  FLASH_UNROLL
  for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
  for (int n = 0; n < C::kBlockK / 8; ++n) FLASH_UNROLL
  for (int i = 0; i < 4; ++i) S[tile][n][i] = 0;

  FLASH_UNROLL_BY(C::kUnrollQK)
  for (int k = 0; k < C::kHeadDim / 16; ++k) {
    std::uint32_t Q[C::kTiles][4];
    FLASH_UNROLL
    for (int tile = 0; tile < C::kTiles; ++tile)
      ldmatrix(Q[tile],
               Q_smem.chunk(me.first_row + 16 * tile + me.lane % 16, 2 * k + me.lane / 16));
    FLASH_UNROLL
    for (int n = 0; n < C::kBlockK / 8; n += 2) {  // two fragments of K, 8 keys each
      std::uint32_t K[4];
      ldmatrix(K, K_smem.chunk(8 * n + me.lane / 16 * 8 + me.lane % 8, 2 * k + me.lane / 8 % 2));
      const std::uint32_t first[2] = {K[0], K[1]}, second[2] = {K[2], K[3]};
      FLASH_UNROLL
      for (int tile = 0; tile < C::kTiles; ++tile) {
        multiply_add<T>(S[tile][n], Q[tile], first);
        multiply_add<T>(S[tile][n + 1], Q[tile], second);
      }
    }
  }
}

// Two numbers in a register, rounded to T.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, Half>) {
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const std::uint32_t&>(both);
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
__device__ __forceinline__ void add_PV(Rows<C>& rows, const Scores<C>& P_float, const Tile& V_smem,
                                       const Lane<C>& me) {
  FLASH_UNROLL
  for (int k = 0; k < C::kBlockK / 16; ++k) {  // 16 keys
    std::uint32_t P[C::kTiles][4];
    FLASH_UNROLL
    for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
    for (int i = 0; i < 4; ++i)
      P[tile][i] = pack<T>(P_float[tile][2 * k + i / 2][i % 2 * 2],
                           P_float[tile][2 * k + i / 2][i % 2 * 2 + 1]);
    FLASH_UNROLL
    for (int n = 0; n < C::kHeadDim / 8; n += 2) {  // two fragments of V, 8 columns each
      std::uint32_t V[4];
      ldmatrix<true>(V, V_smem.chunk(16 * k + me.lane % 16, n + me.lane / 16));
      const std::uint32_t first[2] = {V[0], V[1]}, second[2] = {V[2], V[3]};
      FLASH_UNROLL
      for (int tile = 0; tile < C::kTiles; ++tile) {
        multiply_add<T>(rows.O[tile][n], P[tile], first);
        multiply_add<T>(rows.O[tile][n + 1], P[tile], second);
      }
    }
  }
}

// ---- Softmax ------------------------------------------------------------------------------------

// The scores of keys that a row does not see become -INFINITY.
template <class C>
__device__ __forceinline__ void mask_scores(Scores<C>& S, int keys, bool causal, int i0, int j0,
                                            const Lane<C>& me) {
  FLASH_UNROLL
  for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int query = i0 + me.row(tile, half);
    const int sees = (causal && query + 1 < keys ? query + 1 : keys) - j0 - me.t2;
    FLASH_UNROLL
    for (int n = 0; n < C::kBlockK / 8; ++n) FLASH_UNROLL
    for (int i = 0; i < 2; ++i)
      if (8 * n + i >= sees) S[tile][n][2 * half + i] = -INFINITY;
  }
}

// O of rows g (`half` 0) or g + 8 (1) times alpha.
template <int kColumns>
__device__ __forceinline__ void rescale(float (&O)[kColumns][4], int half, float alpha) {
  FLASH_UNROLL
  for (int n = 0; n < kColumns; ++n) FLASH_UNROLL
  for (int i = 2 * half; i < 2 * half + 2; ++i) O[n][i] *= alpha;
}

// Online softmax of rows g (`half` 0) or g + 8 (1) of a tile: m takes in the new scores, S becomes
// P = exp2(scale * (S - m)), and l takes in its sum. `scale` is positive and in base 2. Returns
// alpha, by which O has to be multiplied. Unless kDifferenceFirst, P is one operation faster, and
// wrong by up to 2^-24 |scale * m|, which numbers of 16 bits do not show.
template <class C, bool kDifferenceFirst = false>
__device__ __forceinline__ float softmax_of(int tile, int half, Scores<C>& S, Rows<C>& rows,
                                            float scale) {
  float& m = rows.m[tile][half];
  float m_new = m;
  FLASH_UNROLL
  for (int n = 0; n < C::kBlockK / 8; ++n)
    m_new = fmaxf(m_new, fmaxf(S[tile][n][2 * half], S[tile][n][2 * half + 1]));
  m_new = warp_max<4>(m_new);
  const float safe = m_new == -INFINITY ? 0 : m_new, reference = safe * scale;
  // The difference first: fused, m * scale - reference would not be 0 where m stays as it is.
  const float alpha = exp2_approximate((m - safe) * scale);
  m = m_new;
  float sum = 0;
  FLASH_UNROLL
  for (int n = 0; n < C::kBlockK / 8; ++n) FLASH_UNROLL
  for (int i = 2 * half; i < 2 * half + 2; ++i)
    sum += S[tile][n][i] = exp2_approximate(
        kDifferenceFirst ? (S[tile][n][i] - safe) * scale : fmaf(S[tile][n][i], scale, -reference));
  rows.l[tile][half] = rows.l[tile][half] * alpha + sum;
  return alpha;
}

// Online softmax of all rows; O shrinks with them.
template <class C, bool kDifferenceFirst = false>
__device__ __forceinline__ void softmax_step(Scores<C>& S, Rows<C>& rows, float scale) {
  FLASH_UNROLL
  for (int tile = 0; tile < C::kTiles; ++tile) {
    float alpha[2];
    FLASH_UNROLL
    for (int half = 0; half < 2; ++half) {
      alpha[half] = softmax_of<C, kDifferenceFirst>(tile, half, S, rows, scale);
      if constexpr (!C::kTestsAlpha) rescale(rows.O[tile], half, alpha[half]);
    }
    // Most steps find no larger score in any of the warp's rows.
    if constexpr (C::kTestsAlpha) {
      if (!__any_sync(kAllLanes, alpha[0] != 1 || alpha[1] != 1)) continue;
      rescale(rows.O[tile], 0, alpha[0]);
      rescale(rows.O[tile], 1, alpha[1]);
    }
  }
}

// What ends row g (`half` 0) or g + 8 (1) of a tile: 1 / l, by which O has to be multiplied, and
// lse = scale * m + log(l) in base e. A row with no key gets 0 and -inf.
struct RowEnd {
  float inverse, lse;
};

template <class C>
__device__ __forceinline__ RowEnd end_of(int tile, int half, const Rows<C>& rows, float scale) {
  const float l = warp_sum<4>(rows.l[tile][half]), m = rows.m[tile][half],
              of_O = warp_sum<4>(rows.l[tile][half] + rows.rounding[tile][half]);
  return l == 0 ? RowEnd{0, -INFINITY} : RowEnd{1 / of_O, (m * scale + log2f(l)) * kLn2};
}

template <class C>
__device__ __forceinline__ void store_lse(float value, int query, const TensorView<float, 3>& lse,
                                          const Work& work, const Lane<C>& me) {
  if (me.t2 == 0 && query < lse.extent(2)) lse(work.b, work.h, query) = value;
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

// Ends all rows, and stores O. A lane has 2 neighbouring columns of each fragment. Four lanes
// exchange theirs, so that each stores 16 bytes and not 4 (step 3: up to 9 % faster).
template <class C, class T>
__device__ __forceinline__ void store(const Rows<C>& rows, const TensorView<T, 4>& out,
                                      const TensorView<float, 3>& lse, const Work& work,
                                      float scale, const Lane<C>& me) {
  FLASH_UNROLL
  for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const RowEnd end = end_of<C>(tile, half, rows, scale);
    const int query = work.i0 + me.row(tile, half);
    store_lse<C>(end.lse, query, lse, work, me);
    const bool inside = query < out.extent(2);
    T* const row = inside ? &out(work.b, work.h, query, 4 * me.t2) : nullptr;
    FLASH_UNROLL
    for (int n = 0; n < C::kHeadDim / 8; n += 4) {
      std::uint32_t words[4];
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i)
        words[i] = pack<T>(rows.O[tile][n + i][2 * half] * end.inverse,
                           rows.O[tile][n + i][2 * half + 1] * end.inverse);
      exchange(words, me.lane);
      if (inside && 8 * n + 4 * me.t2 < out.extent(3))
        *reinterpret_cast<uint4*>(row + 8 * n) = {words[0], words[1], words[2], words[3]};
    }
  }
}

// ---- Around the kernels -------------------------------------------------------------------------

// Why the kernels do not take a problem, in words; "" when they take it.
inline std::string why_not(const AttentionProblem& problem) {
  const AttentionShape& shape = problem.shape;
  if (device::count() > 0 && device::compute_capability() < 80)
    return "the GPU has compute capability " + std::to_string(device::compute_capability()) +
           "; it must be at least 80 (Ampere)";
  if (shape.head_dim % kChunk != 0)
    return "head_dim is " + std::to_string(shape.head_dim) + "; it must be a multiple of 8";
  if (std::string why = why_above("head_dim", shape.head_dim, 256); !why.empty()) return why;
  // Rows are counted in 32 bits, up to the end of a step.
  constexpr Index kMostRows = std::numeric_limits<int>::max() - 256;
  for (const auto& [name, rows] : {std::pair{"queries", shape.queries}, {"keys", shape.keys}})
    if (std::string why = why_above(name, rows, kMostRows); !why.empty()) return why;
  const double scale = problem.options.scale.value_or(1);
  const auto in_base_2 = static_cast<float>(scale * kLog2E);
  if (std::isfinite(scale) && !(in_base_2 > 0 && std::isfinite(in_base_2)))
    return "scale is " + std::to_string(scale) + "; it must be a float above 0";
  return why_not_in_chunks(problem, 16);
}

// Tiles of kBlockQ queries, of all heads.
template <class C>
Index tiles_of(const AttentionShape& shape) {
  return shape.batch * shape.heads * ((shape.queries + C::kBlockQ - 1) / C::kBlockQ);
}

// A launch of that many thread blocks of a configuration.
template <class C>
LaunchConfig launch_of(C, Index blocks, Stream stream) {
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
    launch(name, kernel_of(config), launch_of(config, tiles_of<C>(shape), pass.stream), pass.q,
           pass.k, pass.v, pass.out, pass.lse, scale_in_base_2(pass), pass.options.causal);
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
