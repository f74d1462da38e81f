// Rung 9: float32 by products of 16-bit numbers, in one pass on wgmma.
//
// New: each float32 number is the sum of two fp16 numbers, its planes, and each of the five
// products the sum of three products of planes (part 3's rung 11 and float32.md). A kernel splits
// Q, K, V and dO beforehand, with a power of two for each tile; P and dS are split in registers.
//
// P is at most 1, so it is multiplied by 2^14. For dS there is a bound: |dP_ij - delta_i| is at
// most |dO_i| |V_j| + |delta_i|, with Euclidean norms. The first kernel stores the largest value of
// each of the three for each tile, and a step takes the power of two that brings its bound to 2^14.
// A key whose P is below 2^-14 for every query would still lose digits. A block knows this after
// its last step. It then computes dK and dV once more, with a power of its own for each such key.
//
// fp16 loses the digits of a number that is 2^17 times smaller than the largest of its tile. Heads
// with more than 1 such number of 1024 in a tile go to the same kernel with three planes of
// bfloat16 and six products. Both are launched, and a block leaves when its head is not for it.
//
// A block has 64 keys, and its three warpgroups have different work, as in rung 5:
//
//   group 0   S^T = K Q^T     P^T = exp(S^T - lse)            dV += P^T dO
//   group 1   dP^T = V dO^T   dS^T = P^T * (dP^T - delta)     dK += dS^T Q
//   group 2   orders the copies                               dQ += dS K, added in memory
//
// So a warpgroup has one gradient, and registers for a product of its own. A tensor core cuts its
// sums off, so each step's product starts from 0, and is added to the gradient by FFMA. P goes from
// group 0 to group 1 as float32, dS as planes. Nobody waits for the slowest group: each works a
// step late or early.
//
// The exponent is (S - lse) log2(e), the difference first: with a large lse the other order rounds
// away what P needs. S adds up its products in the order of the forward pass: what tensor cores cut
// off is then the same in both, and cancels in S - lse.
//
// The bottleneck: additions to dQ take 7 %, and shared memory is busy more than half of the time.
// Measured on an H200 (batch 8, 1 head of 64; with the kernels before and behind), beside PyTorch's
// memory-efficient kernel in the same run: 4096 keys 0.484 ms, 5.0 times as fast, with a mask 6.4
// times; 8192 keys 5.4 and 6.0 times; 16384 keys 6.97 ms, 6.1 times, with a mask 6.2 times. Heads
// of 128: 5.4, 5.7 and 6.3 times, with a mask 5.9, 5.7 and 6.0 times. The errors (relative,
// Frobenius, with out and lse of part 3's rung 11) are 0.6 to 0.9 of PyTorch's for N(0, 1). With Q
// times 8 they are 0.6 to 1.0, except dV's for heads of 128, which is 1.1. Where one number of Q is
// 1000, its row's scores are in the hundreds, and dV's error is up to 30 times PyTorch's.
#include <algorithm>

#include "bonus_backward/ladder/hopper.hpp"
#include "part3_flash_cuda/ladder/planes.hpp"

namespace flash::float32_gradients {
namespace {

using namespace gradients;

// How a head is computed: Planes of T, 64 keys a block, BlockQ queries a step, of which PQueries at
// a time cross from group 0 to group 1 as P; shared memory for the queries of Stages steps.
template <class T, int Planes, int HeadDim, int BlockQ, int Stages, int PQueries>
struct Config {
  using Element = T;
  static constexpr int kPlanes = Planes, kHeadDim = HeadDim, kBlockQ = BlockQ, kBlockK = 64,
                       kStages = Stages, kPQueries = PQueries;
  static constexpr bool kScales = kPlanes == 2;
  // Numbers of a plane.
  static constexpr int kKSize = kBlockK * kHeadDim, kQSize = kBlockQ * kHeadDim,
                       kSSize = kBlockK * kBlockQ;
  static constexpr std::size_t kSharedBytes =
      2 * kPlanes * (2 * kKSize + 2 * kStages * kQSize + kSSize) + 4 * kBlockK * kPQueries +
      128 * sizeof(float2) + 1024;  // to begin at 1024 bytes
  // Planes of the block's keys, K in one group and V in the other, that stay in registers, and
  // columns of dV or dK that are computed at a time: what registers there are for.
  static constexpr int kKept = kScales && kHeadDim == 128 ? 1 : 0,
                       kColumns = kScales && kHeadDim == 64 ? kHeadDim : 64;
};

// A head whose numbers fit goes to Fast, another one to Robust.
template <class F, class R>
struct Both {
  using Fast = F;
  using Robust = R;
  static constexpr int kHeadDim = Fast::kHeadDim;
  static constexpr std::size_t kSharedBytes = std::max(Fast::kSharedBytes, Robust::kSharedBytes);
};
using Configs = Table<Both<Config<Half, 2, 64, 128, 2, 128>, Config<BFloat16, 3, 64, 64, 2, 64>>,
                      Both<Config<Half, 2, 128, 64, 2, 64>, Config<BFloat16, 3, 128, 64, 1, 32>>>;

constexpr int kThreads = 384, kBoxRows = 64;
// Planes for which there is memory, of each tensor.
constexpr int kMostPlanes = 3;

// With two planes P is multiplied by this, and by at most kMostPower, before it is split.
constexpr float kPPower = 0x1p14f, kMostPower = 0x1p120f;

// The planes of a side's two tensors, for tiles of as many rows as a kernel takes together.
struct Side {
  Half *first, *second;  // Q and dO, or K and V: (heads, kMostPlanes, rows, head_dim)
  float *first_factor, *second_factor;  // (heads, tiles): what a number of the planes is worth
  int tiles;                            // of a head
};

struct Memory {
  Workspace work;
  Side queries, keys;
  float2* row_bounds;  // (heads, tiles of queries): the largest |dO_i| and |delta_i|
  float* v_norms;      // (heads, tiles of keys): the largest |V_j|
  unsigned* is_wide;   // (heads)
};

// ---- Before -------------------------------------------------------------------------------------

// Stores the planes of four neighbours times `power`.
template <class C>
__device__ __forceinline__ void store_planes(Half* to, const float4& four, float power, int head,
                                             int row, int column, int rows, int columns) {
  if (row >= rows || column >= columns) return;
  uint2 planes[C::kPlanes];
  planes::split_four<C>(four, power, planes);
  FLASH_UNROLL
  for (int plane = 0; plane < C::kPlanes; ++plane)
    *reinterpret_cast<uint2*>(to + ((Index{head} * kMostPlanes + plane) * rows + row) * columns +
                              column) = planes[plane];
}

// blockIdx.y is 0 to 3 for Q, dO, K and V; a block has a tile.
template <class C>
__global__ void __launch_bounds__(kSplitThreads)
    split_kernel(AttentionBackward<float> pass, Memory memory) {
  __shared__ float scratch[kSplitThreads / kWarpSize];
  const AttentionShape shape = pass.shape();
  const bool is_query = blockIdx.y < 2, is_first = blockIdx.y % 2 == 0;
  const Side& side = is_query ? memory.queries : memory.keys;
  const int heads = static_cast<int>(shape.batch * shape.heads),
            most = static_cast<int>(gridDim.x) / heads, head = static_cast<int>(blockIdx.x) / most,
            tile = static_cast<int>(blockIdx.x) % most;
  if (tile >= side.tiles) return;
  const auto split_rows = [&]<int kRows>(std::integral_constant<int, kRows>) {
    constexpr int kSize = kRows * C::kHeadDim, kFours = kSize / 4 / kSplitThreads,
                  kLanes = C::kHeadDim / 4, kRowsAtOnce = kSplitThreads / kLanes;
    const TensorView<const float, 4>& x =
        is_query ? (is_first ? pass.q : pass.d_out) : (is_first ? pass.k : pass.v);
    const int rows = static_cast<int>(x.extent(2)), columns = static_cast<int>(x.extent(3)),
              thread = static_cast<int>(threadIdx.x), lane = thread % kLanes, column = 4 * lane,
              first = tile * kRows + thread / kLanes;
    const Index b = head / shape.heads, h = head % shape.heads;
    const auto load = [&](const TensorView<const float, 4>& from, int row) {
      return row < rows && column < columns
                 ? *reinterpret_cast<const float4*>(&from(b, h, row, column))
                 : float4{0, 0, 0, 0};
    };
    float4 four[kFours];
    FLASH_UNROLL
    for (int n = 0; n < kFours; ++n) four[n] = load(x, first + n * kRowsAtOnce);

    float largest = 0;
    FLASH_UNROLL
    for (int n = 0; n < kFours; ++n) largest = fmaxf(largest, planes::largest_of(four[n]));
    const float power = scale_for(block_max<kSplitThreads>(largest, scratch));
    const int at = head * side.tiles + tile;
    if (thread == 0) (is_first ? side.first_factor : side.second_factor)[at] = factor_of(power);

    if (!is_first) {  // dO or V
      float norm = 0, most_delta = 0;
      FLASH_UNROLL
      for (int n = 0; n < kFours; ++n) {
        const float4& y = four[n];
        // Scaled, so that squares do not overflow.
        const float4 z = {y.x * power, y.y * power, y.z * power, y.w * power};
        norm = fmaxf(norm, warp_sum<kLanes>(z.x * z.x + z.y * z.y + z.z * z.z + z.w * z.w));
        if (!is_query) continue;
        const int row = first + n * kRowsAtOnce;
        const float4 out = load(pass.out, row);
        const float delta = warp_sum<kLanes>(y.x * out.x + y.y * out.y + y.z * out.z + y.w * out.w);
        most_delta = fmaxf(most_delta, fabsf(delta));
        const Index place = head * memory.work.rows + row;
        if (lane == 0) {
          const float lse = row < rows ? pass.lse(b, h, row) : -INFINITY;
          memory.work.lse[place] = lse == -INFINITY ? INFINITY : lse;
          memory.work.delta[place] = delta;
        }
        reinterpret_cast<float4*>(memory.work.sums + place * C::kHeadDim)[lane] = float4{};
      }
      norm = sqrtf(block_max<kSplitThreads>(norm, scratch)) * factor_of(power);
      if (is_query) {
        most_delta = block_max<kSplitThreads>(most_delta, scratch);
        if (thread == 0) memory.row_bounds[at] = {norm, most_delta};
      } else if (thread == 0) {
        memory.v_norms[at] = norm;
      }
    }

    const auto is_small = [&](float value) {
      return value != 0 && fabsf(value) * power < 0.125f ? 1 : 0;
    };
    int small = 0;
    FLASH_UNROLL
    for (int n = 0; n < kFours; ++n)
      small +=
          is_small(four[n].x) + is_small(four[n].y) + is_small(four[n].z) + is_small(four[n].w);
    const float all = block_sum<kSplitThreads>(static_cast<float>(small), scratch);
    if (thread == 0 && all * 1024 > kSize) atomicOr(&memory.is_wide[head], 1u);

    FLASH_UNROLL
    for (int n = 0; n < kFours; ++n)
      store_planes<C>(is_first ? side.first : side.second, four[n], power, head,
                      first + n * kRowsAtOnce, column, rows, columns);
  };
  if (is_query)
    split_rows(std::integral_constant<int, C::kBlockQ>());
  else
    split_rows(std::integral_constant<int, C::kBlockK>());
}

// The planes of the heads that need three, in place of those of split_kernel().
template <class C>
__global__ void __launch_bounds__(kSplitThreads)
    split_wide_kernel(AttentionBackward<float> pass, Memory memory) {
  wait_for_kernel_before();
  const AttentionShape shape = pass.shape();
  const int heads = static_cast<int>(shape.batch * shape.heads),
            head = static_cast<int>(blockIdx.x) % heads,
            part = static_cast<int>(blockIdx.x) / heads,
            parts = static_cast<int>(gridDim.x) / heads;
  if (memory.is_wide[head] == 0) return;
  const bool is_query = blockIdx.y < 2, is_first = blockIdx.y % 2 == 0;
  const Side& side = is_query ? memory.queries : memory.keys;
  const TensorView<const float, 4>& x =
      is_query ? (is_first ? pass.q : pass.d_out) : (is_first ? pass.k : pass.v);
  const int rows = static_cast<int>(x.extent(2)), columns = static_cast<int>(x.extent(3)),
            fours = columns / 4;
  for (Index i = part * kSplitThreads + static_cast<int>(threadIdx.x); i < Index{rows} * fours;
       i += parts * kSplitThreads) {
    const int row = static_cast<int>(i / fours), column = static_cast<int>(i % fours) * 4;
    store_planes<C>(
        is_first ? side.first : side.second,
        *reinterpret_cast<const float4*>(&x(head / shape.heads, head % shape.heads, row, column)),
        1, head, row, column, rows, columns);
  }
}

// ---- The main kernel ----------------------------------------------------------------------------

struct Maps {
  TensorMap q, k, v, d_out;
};

struct Arguments {
  AttentionShape shape;
  Memory memory;
  TensorView<float, 4> d_k, d_v;
  int section;
  float scale;
  bool causal;
};

struct Barriers {
  Barrier K_full, V_full, Q_full[2], dO_full[2], Q_empty[2], dO_empty[2], P_full, P_empty, dS_full,
      dS_empty;

  __device__ __forceinline__ void init_all() {
    init(K_full, 1);
    init(V_full, 1);
    init(P_full, 4);
    init(P_empty, 4);
    init(dS_full, 4);
    init(dS_empty, 4);
    for (int i = 0; i < 2; ++i) {
      init(Q_full[i], 1);
      init(dO_full[i], 1);
      init(Q_empty[i], 8);
      init(dO_empty[i], 8);
    }
    fence_barrier_init();
  }
};

// Shared memory; a tile's planes, and the tiles of the stages, lie one behind the other.
template <class C>
struct Tiles {
  using T = typename C::Element;
  T *K, *V, *Q, *dO, *dS;
  float4* P;         // of group 0 for group 1: [kPQueries / 8][128 threads]
  float2* P_raised;  // [128 threads]: how many times kPPower its rows of P are multiplied by

  __device__ __forceinline__ explicit Tiles(T* shared)
      : K(align_to_1024(shared)),
        V(K + C::kPlanes * C::kKSize),
        Q(V + C::kPlanes * C::kKSize),
        dO(Q + C::kStages * C::kPlanes * C::kQSize),
        dS(dO + C::kStages * C::kPlanes * C::kQSize),
        P(reinterpret_cast<float4*>(dS + C::kPlanes * C::kSSize)),
        P_raised(reinterpret_cast<float2*>(P + C::kPQueries / 8 * 128)) {}
};

// The planes of P^T or dS^T as A: 64 keys, and the queries of a step.
template <class C>
using Weights = Packed<C::kBlockQ>[C::kPlanes];
template <class C>
using Scores = float[C::kBlockQ / 2];
template <class C>
using Gradient = float[C::kHeadDim / 2];

// The first planes of a tile of 64 keys as A, 16 keys a warp.
template <class C>
struct KeptKeys {
  Packed<C::kHeadDim> planes[C::kKept < 1 ? 1 : C::kKept];

  __device__ __forceinline__ void load(typename C::Element* tile, int warp, unsigned lane) {
    FLASH_UNROLL
    for (int plane = 0; plane < C::kKept; ++plane) {
      FLASH_UNROLL
      for (int k = 0; k < C::kHeadDim / 16; ++k)
        ldmatrix(planes[plane][k],
                 chunk_of<64>(tile + plane * C::kKSize, 16 * warp + static_cast<int>(lane % 16),
                              2 * k + static_cast<int>(lane / 16)));
    }
  }
};

// Starts D = A B^T, a group of wgmma: 64 keys by all queries of a tile.
template <class C>
__device__ __forceinline__ void start_scores(Scores<C>& D, const KeptKeys<C>& kept,
                                             MatrixDescriptor keys, MatrixDescriptor B) {
  wgmma_fence();
  planes::for_products<C>([&](int b, int a, bool first) {
    FLASH_UNROLL
    for (int k = 0; k < C::kHeadDim / 16; ++k) {
      const MatrixDescriptor columns =
          B + (2 * b * C::kQSize + k / 4 * C::kBlockQ * 128 + k % 4 * 32);
      if (a < C::kKept)
        wgmma<C::kBlockQ, typename C::Element>(D, kept.planes[a][k], columns, !first || k > 0);
      else
        wgmma<C::kBlockQ, typename C::Element>(
            D, keys + (2 * a * C::kKSize + k / 4 * 64 * 128 + k % 4 * 32), columns,
            !first || k > 0);
    }
  });
  wgmma_commit();
}

// D += factor * A B, with A from registers; B's rows are those of a tile of queries. A tensor core
// cuts its sums off, so A B starts from 0. meanwhile() is called while the first product goes on.
template <class C, class Meanwhile>
__device__ __forceinline__ void add_product(Gradient<C>& D, const Weights<C>& A, MatrixDescriptor B,
                                            Barrier& empty, unsigned lane, float factor,
                                            Meanwhile meanwhile) {
  FLASH_UNROLL
  for (int column = 0; column < C::kHeadDim; column += C::kColumns) {
    float X[C::kColumns / 2];
    wgmma_fence();
    planes::for_products<C>([&](int a, int b, bool first) {
      FLASH_UNROLL
      for (int k = 0; k < C::kBlockQ / 16; ++k)
        wgmma<C::kColumns, typename C::Element, true>(
            X, A[a][k], B + (2 * b * C::kQSize + column * C::kBlockQ * 2 + k * 2048),
            !first || k > 0);
    });
    wgmma_commit();
    if (column == 0) meanwhile();
    wgmma_wait<0>();
    if (column + C::kColumns == C::kHeadDim) tell(empty, lane);
    FLASH_UNROLL
    for (int i = 0; i < C::kColumns / 2; ++i)
      D[column / 2 + i] = fmaf(X[i], factor, D[column / 2 + i]);
  }
}

// The planes of D, each of the thread's two rows times a power of two, for the next product.
template <class C>
__device__ __forceinline__ void split_scores(Weights<C>& A, const Scores<C>& D,
                                             const float (&powers)[2]) {
  FLASH_UNROLL
  for (int k = 0; k < C::kBlockQ / 16; ++k) {
    FLASH_UNROLL
    for (int i = 0; i < 4; ++i) {
      std::uint32_t planes[C::kPlanes];
      planes::split<C::kPlanes, typename C::Element>(D[8 * k + 2 * i] * powers[i % 2],
                                                     D[8 * k + 2 * i + 1] * powers[i % 2], planes);
      FLASH_UNROLL
      for (int plane = 0; plane < C::kPlanes; ++plane) A[plane][k][i] = planes[plane];
    }
  }
}

template <class C>
using RowNumbers = float2[C::kBlockQ / 8];

// Of the queries of a step: lse or delta of the thread's columns.
template <class C>
__device__ __forceinline__ void read_rows(RowNumbers<C>& numbers, const float* from,
                                          unsigned lane) {
  FLASH_UNROLL
  for (int i = 0; i < C::kBlockQ / 8; ++i)
    numbers[i] = *reinterpret_cast<const float2*>(from + 8 * i + lane % 4 * 2);
}

// Stores D, the gradient of the warpgroup's 64 keys, with a factor for each of the thread's rows.
template <class C>
__device__ __forceinline__ void store_gradient(const TensorView<float, 4>& to, const Gradient<C>& D,
                                               float factor0, float factor1, int warp,
                                               unsigned lane, const BlockOfHead& block) {
  FLASH_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int key = block.first + 16 * warp + static_cast<int>(lane / 4) + 8 * r;
    if (key >= to.extent(2)) continue;
    float* const row = &to(block.b, block.h, key, 0) + lane % 4 * 2;
    const float factor = r == 0 ? factor0 : factor1;
    FLASH_UNROLL
    for (int c = 0; c < C::kHeadDim / 8; ++c)
      if (8 * c < to.extent(3))
        *reinterpret_cast<float2*>(row + 8 * c) = {D[4 * c + 2 * r] * factor,
                                                   D[4 * c + 2 * r + 1] * factor};
  }
}

// The blocks of the heads that C is for.
template <class C>
__global__ void __launch_bounds__(kThreads, 1)
    float32_planes_kernel(const __grid_constant__ Maps maps, Arguments a) {
  using T = typename C::Element;
  constexpr int kD = C::kHeadDim, kBlockQ = C::kBlockQ, kStages = C::kStages,
                kParts = kBlockQ / C::kPQueries;
  __shared__ Barriers barriers;
  auto &K_full = barriers.K_full, &V_full = barriers.V_full, &P_full = barriers.P_full,
       &P_empty = barriers.P_empty, &dS_full = barriers.dS_full, &dS_empty = barriers.dS_empty;
  auto &Q_full = barriers.Q_full, &dO_full = barriers.dO_full, &Q_empty = barriers.Q_empty,
       &dO_empty = barriers.dO_empty;
  FLASH_DYNAMIC_SHARED(T, shared);
  const Tiles<C> tiles(shared);
  const BlockOfHead block(a.shape, a.section, a.shape.keys, C::kBlockK, a.causal, false);
  const Memory& memory = a.memory;
  wait_for_kernel_before();
  if ((memory.is_wide[block.head] != 0) == C::kScales) return;
  if (threadIdx.x == 0) barriers.init_all();
  __syncthreads();

  const int j0 = block.first, first = a.causal ? j0 / kBlockQ : 0,
            all = static_cast<int>((a.shape.queries + kBlockQ - 1) / kBlockQ),
            steps = all > first ? all - first : 0,
            first_tile = block.head * memory.queries.tiles + first,
            key_tile = block.head * memory.keys.tiles + j0 / C::kBlockK;
  const Index first_row = block.head * memory.work.rows + first * kBlockQ;
  const unsigned thread = threadIdx.x % 128, lane = thread % 32;
  const int warp = static_cast<int>(thread / 32);
  // The power of two for a step's dS, from a bound of |dP - delta|.
  const float v_norm = memory.v_norms[key_tile];
  const auto dS_power = [&](int n) {
    if (!C::kScales) return 1.0f;
    const float2 bounds = memory.row_bounds[first_tile + n];
    return scale_for(fmaf(bounds.x, v_norm, bounds.y));
  };

  // Where a row of P was too small for its digits, its gradients are computed again.
  const auto again = [&](bool raised) {
    return C::kScales && steps > 0 && __syncthreads_or(raised);
  };

  if (threadIdx.x >= 256) {
    give_registers<104>();
    const auto load = [&](int n) {
      const int stage = n % kStages, parity = n / kStages % 2,
                i0 = (first + (n < steps ? n : n % steps)) * kBlockQ;
      const auto load_tile = [&]<int kRows>(std::integral_constant<int, kRows>, T* tile,
                                            const TensorMap& map, Barrier& full, int row0) {
        arrive_expecting(full, 2 * C::kPlanes * kRows * kD);
        FLASH_UNROLL
        for (int plane = 0; plane < C::kPlanes; ++plane) {
          FLASH_UNROLL
          for (int slab = 0; slab < kD / 64; ++slab) FLASH_UNROLL
          for (int row = 0; row < kRows; row += kBoxRows)
            tma_load(tile + (plane * kD + slab * 64) * kRows + row * 64, map, full, 64 * slab,
                     row0 + row, plane, block.head);
        }
      };
      constexpr std::integral_constant<int, 64> kKeys;
      constexpr std::integral_constant<int, kBlockQ> kQueries;
      if (n == 0) load_tile(kKeys, tiles.K, maps.k, K_full, j0);
      wait(Q_empty[stage], parity ^ 1);
      load_tile(kQueries, tiles.Q + stage * C::kPlanes * C::kQSize, maps.q, Q_full[stage], i0);
      if (n == 0) load_tile(kKeys, tiles.V, maps.v, V_full, j0);
      wait(dO_empty[stage], parity ^ 1);
      load_tile(kQueries, tiles.dO + stage * C::kPlanes * C::kQSize, maps.d_out, dO_full[stage],
                i0);
    };
    if (thread == 0)
      for (int n = 0; n < kStages && n < steps; ++n) load(n);
    __syncwarp();  // no race without it: it brings the warp together for wgmma
    const float k_factor = C::kScales ? memory.keys.first_factor[key_tile] : 1;
    float* const sums = memory.work.sums + first_row * kD + place_of_sums<kD>(16 * warp, 0, lane);
    const MatrixDescriptor dS = by_rows(tiles.dS), K = by_columns<64>(tiles.K);
    if (steps > 0) wait(K_full, 0);  // no race without it: group 0 has waited before it sent P
    for (int n = 0; n < steps; ++n) {
      const float factor = C::kScales ? k_factor * factor_of(dS_power(n)) : 1;
      Gradient<C> dQ[kBlockQ / 64];
      wait(dS_full, n % 2);
      wgmma_fence();
      FLASH_UNROLL
      for (int m = 0; m < kBlockQ / 64; ++m)
        planes::for_products<C>([&](int s, int k_plane, bool is_first) {
          FLASH_UNROLL
          for (int k = 0; k < 4; ++k)
            wgmma<kD, T, true>(dQ[m], dS + (2 * s * C::kSSize + m * 64 * 128 + k * 32),
                               K + (2 * k_plane * C::kKSize + k * 2048), !is_first || k > 0);
        });
      wgmma_commit();
      wgmma_wait<0>();
      tell(dS_empty, lane);
      FLASH_UNROLL
      for (int m = 0; m < kBlockQ / 64; ++m) {
        float* const to = sums + (n * kBlockQ + 64 * m) * kD;
        FLASH_UNROLL
        for (int i = 0; i < kD / 8; ++i) {
          const Gradient<C>& D = dQ[m];
          const float four[4] = {D[4 * i] * factor, D[4 * i + 1] * factor, D[4 * i + 2] * factor,
                                 D[4 * i + 3] * factor};
          add_in_memory(to + i * 128, four);
        }
      }
      if (thread == 0 && n + kStages < steps) load(n + kStages);
      __syncwarp();  // no race without it: as above
    }
    for (int begin = steps; again(false); begin += steps) {
      if (thread == 0)
        for (int n = begin; n < begin + steps; ++n) load(n);
      __syncwarp();  // no race without it: it brings the warp together for again()
    }
    return;
  }

  take_registers<200>();
  KeptKeys<C> keys;
  Gradient<C> D;  // dV or dK
  FLASH_UNROLL
  for (float& x : D) x = 0;

  if (threadIdx.x < 128) {
    const int keys_left = static_cast<int>(a.shape.keys) - j0;
    int my_keys[2];  // of the thread's rows, less the column of its first query
    FLASH_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int key = 16 * warp + static_cast<int>(lane / 4) + 8 * r;
      my_keys[r] = (key < keys_left ? key : 1 << 30) - 2 * static_cast<int>(lane % 4);
    }
    const float k_factor = C::kScales ? memory.keys.first_factor[key_tile] * a.scale : a.scale;
    if (steps > 0) wait(K_full, 0);
    if (steps > 0) keys.load(tiles.K, warp, lane);
    float powers[2] = {1, 1};  // by which the thread's rows of P are multiplied
    if (C::kScales) powers[0] = powers[1] = kPPower;
    for (int begin = 0;; begin += steps) {
      __half2 largest[2] = {__float2half2_rn(0), __float2half2_rn(0)};
      for (int n = begin; n < begin + steps; ++n) {
        const int step = n - begin, stage = __shfl_sync(kAllLanes, n % kStages, 0),
                  parity = n / kStages % 2;
        Scores<C> S;
        RowNumbers<C> lse;
        const float factor = C::kScales ? k_factor * memory.queries.first_factor[first_tile + step]
                                        : k_factor,
                    dV_factor = C::kScales ? memory.queries.second_factor[first_tile + step] : 1;
        wait(Q_full[stage], parity);
        start_scores<C>(S, keys, by_rows(tiles.K),
                        by_rows(tiles.Q + stage * C::kPlanes * C::kQSize));
        read_rows<C>(lse, memory.work.lse + first_row + step * kBlockQ, lane);
        wgmma_wait<0>();
        tell(Q_empty[stage], lane);
        FLASH_UNROLL
        for (int i = 0; i < kBlockQ / 8; ++i) {
          FLASH_UNROLL
          for (int r = 0; r < 2; ++r) {
            float* const two = &S[4 * i + 2 * r];
            two[0] = exp2_approximate(fmaf(two[0], factor, -lse[i].x) * kLog2E);
            two[1] = exp2_approximate(fmaf(two[1], factor, -lse[i].y) * kLog2E);
          }
        }
        const int ahead = a.causal ? (first + step) * kBlockQ - j0 : 64;
        if (ahead < 63 || keys_left < 64) {
          FLASH_UNROLL
          for (int r = 0; r < 2; ++r) {
            const int first_query = my_keys[r] - ahead;
            FLASH_UNROLL
            for (int i = 0; i < kBlockQ / 4; ++i)
              if (i / 2 * 8 + i % 2 < first_query) S[i / 2 * 4 + 2 * r + i % 2] = 0;
          }
        }
        FLASH_UNROLL
        for (int part = 0; part < kParts; ++part) {
          wait(P_empty, (n * kParts + part) % 2 ^ 1);
          FLASH_UNROLL
          for (int i = 0; i < C::kPQueries / 8; ++i) {
            const float* const four = S + 4 * (part * C::kPQueries / 8 + i);
            tiles.P[i * 128 + thread] = make_float4(four[0], four[1], four[2], four[3]);
          }
          tell(P_full, lane);
        }
        Weights<C> P;
        split_scores<C>(P, S, powers);
        wait(dO_full[stage], parity);
        add_product<C>(D, P, by_columns<kBlockQ>(tiles.dO + stage * C::kPlanes * C::kQSize),
                       dO_empty[stage], lane, dV_factor, [&] {
                         if constexpr (C::kScales) {
                           FLASH_UNROLL
                           for (int i = 0; i < kBlockQ / 4; ++i)
                             largest[i % 2] =
                                 __hmax2(largest[i % 2],
                                         reinterpret_cast<const __half2&>(P[0][i / 4][i % 4]));
                         }
                       });
      }
      // A row that a query sees, and whose largest number is below 1, has lost digits. Those below
      // 2^-25 are 0 here: the row may have to be raised again.
      float raised[2] = {powers[0], powers[1]};
      FLASH_UNROLL
      for (int r = 0; r < 2; ++r) {
        const float2 both = __half22float2(largest[r]);
        const float row = warp_max<4>(fmaxf(both.x, both.y));
        const int key = 16 * warp + static_cast<int>(lane / 4) + 8 * r;
        const bool is_seen = key < keys_left && (!a.causal || j0 + key < a.shape.queries);
        if (C::kScales && is_seen && row < 1)
          raised[r] = fminf(powers[r] * scale_for(fmaxf(row, 0x1p-25f)), kMostPower);
      }
      if (C::kScales && steps > 0)               // group 1 has read P_raised
        wait(P_empty, (begin + steps - 1) % 2);  // no race without it: not before a second turn
      tiles.P_raised[thread] = {raised[0] / kPPower, raised[1] / kPPower};
      if (!again(raised[0] != powers[0] || raised[1] != powers[1])) break;
      powers[0] = raised[0];
      powers[1] = raised[1];
      FLASH_UNROLL
      for (float& x : D) x = 0;
    }
    store_gradient<C>(a.d_v, D, factor_of(powers[0]), factor_of(powers[1]), warp, lane, block);
  } else {
    const float v_factor = C::kScales ? memory.keys.second_factor[key_tile] : 1;
    T* const my_dS = chunk_of<kBlockQ>(tiles.dS, static_cast<int>(lane / 16 * 8 + lane % 8),
                                       2 * warp + static_cast<int>(lane / 8 % 2));
    if (steps > 0) wait(V_full, 0);
    if (steps > 0) keys.load(tiles.V, warp, lane);
    float raised[2] = {1, 1};  // as P_raised
    for (int begin = 0;; begin += steps) {
      for (int n = begin; n < begin + steps; ++n) {
        const int step = n - begin, stage = __shfl_sync(kAllLanes, n % kStages, 0),
                  parity = n / kStages % 2;
        Scores<C> dP;
        RowNumbers<C> delta;
        float power = 1, factor = 1, dK_factor = 1;
        if constexpr (C::kScales) {
          power = dS_power(step);
          factor = v_factor * power * memory.queries.second_factor[first_tile + step];
          dK_factor = factor_of(power) * memory.queries.first_factor[first_tile + step];
        }
        wait(dO_full[stage], parity);
        start_scores<C>(dP, keys, by_rows(tiles.V),
                        by_rows(tiles.dO + stage * C::kPlanes * C::kQSize));
        read_rows<C>(delta, memory.work.delta + first_row + step * kBlockQ, lane);
        wgmma_wait<0>();
        tell(dO_empty[stage], lane);
        FLASH_UNROLL
        for (int part = 0; part < kParts; ++part) {
          wait(P_full, (n * kParts + part) % 2);
          FLASH_UNROLL
          for (int j = 0; j < C::kPQueries / 8; ++j) {
            const int i = part * C::kPQueries / 8 + j;
            const float4 P = tiles.P[j * 128 + thread];
            const float2 d = {delta[i].x * power, delta[i].y * power};
            float* const four = &dP[4 * i];
            four[0] = P.x * fmaf(four[0], factor, -d.x);
            four[1] = P.y * fmaf(four[1], factor, -d.y);
            four[2] = P.z * fmaf(four[2], factor, -d.x);
            four[3] = P.w * fmaf(four[3], factor, -d.y);
          }
          tell(P_empty, lane);
        }
        Weights<C> dS;
        split_scores<C>(dS, dP, raised);
        if (begin == 0) {
          wait(dS_empty, n % 2 ^ 1);
          FLASH_UNROLL
          for (int plane = 0; plane < C::kPlanes; ++plane) {
            FLASH_UNROLL
            for (int k = 0; k < kBlockQ / 16; ++k)
              stmatrix<true>(my_dS + plane * C::kSSize + k * 16 * 64, dS[plane][k]);
          }
          fence_proxy_async();
          tell(dS_full, lane);
        }
        wait(Q_full[stage], parity);  // no race without it: group 0 has waited before it sent P
        add_product<C>(D, dS, by_columns<kBlockQ>(tiles.Q + stage * C::kPlanes * C::kQSize),
                       Q_empty[stage], lane, dK_factor, [] {});
      }
      if (!again(false)) break;
      raised[0] = tiles.P_raised[thread].x;
      raised[1] = tiles.P_raised[thread].y;
      FLASH_UNROLL
      for (float& x : D) x = 0;
    }
    store_gradient<C>(a.d_k, D, a.scale * factor_of(raised[0]), a.scale * factor_of(raised[1]),
                      warp, lane, block);
  }
}

// ---- Behind -------------------------------------------------------------------------------------

constexpr int kFinishThreads = 256;

// d_q = scale * sums. A warp has 16 rows and 32 columns: 4 fragments.
template <int kWidth>
__global__ void __launch_bounds__(kFinishThreads)
    finish_float32_kernel(const float* sums, Index rows, TensorView<float, 4> d_q, float scale) {
  constexpr int kAcross = kWidth / 32;
  wait_for_kernel_before();
  const Index warp = (Index{gridDim.x - 1 - blockIdx.x} * kFinishThreads + threadIdx.x) / kWarpSize,
              blocks = rows / 16, head = warp / (blocks * kAcross), block = warp / kAcross % blocks,
              heads = d_q.extent(1);
  const unsigned lane = threadIdx.x % kWarpSize;
  const int column0 = static_cast<int>(warp % kAcross) * 32;
  if (head >= heads * d_q.extent(0) || 16 * block >= d_q.extent(2)) return;
  FLASH_UNROLL
  for (int n = 0; n < 4; ++n) {
    const float4 x = *reinterpret_cast<const float4*>(sums + (head * rows + 16 * block) * kWidth +
                                                      (column0 / 8 + n) * 128 + lane * 4);
    FLASH_UNROLL
    for (int r = 0; r < 2; ++r) {
      const Index i = 16 * block + 8 * r + lane / 4;
      const int column = column0 + 8 * n + static_cast<int>(lane % 4) * 2;
      if (i < d_q.extent(2) && column < d_q.extent(3))
        *reinterpret_cast<float2*>(&d_q(head / heads, head % heads, i, column)) =
            r == 0 ? float2{x.x * scale, x.y * scale} : float2{x.z * scale, x.w * scale};
    }
  }
}

// ---- Around the kernels -------------------------------------------------------------------------

// Shares out the workspace; without memory it counts bytes.
template <class C>
std::size_t share_out(Memory& memory, void* workspace, const AttentionShape& shape) {
  planes::Workspace space{static_cast<char*>(workspace)};
  memory.work.heads = shape.batch * shape.heads;
  memory.work.rows = padded_rows(shape);
  const Index heads = memory.work.heads, rows = heads * memory.work.rows;
  memory.is_wide = space.take<unsigned>(heads);
  memory.work.lse = space.take<float>(rows);
  memory.work.delta = space.take<float>(rows);
  memory.work.sums = space.take<float>(rows * C::kHeadDim);
  const auto take = [&](Side& side, Index of_side, int rows_of_tile) {
    side.tiles = static_cast<int>((of_side + rows_of_tile - 1) / rows_of_tile);
    const Index size = kMostPlanes * heads * of_side * shape.head_dim;
    side.first = space.take<Half>(size);
    side.second = space.take<Half>(size);
    side.first_factor = space.take<float>(heads * side.tiles);
    side.second_factor = space.take<float>(heads * side.tiles);
  };
  take(memory.queries, shape.queries, C::kBlockQ);
  take(memory.keys, shape.keys, C::kBlockK);
  memory.row_bounds = space.take<float2>(heads * memory.queries.tiles);
  memory.v_norms = space.take<float>(heads * memory.keys.tiles);
  return space.used;
}

void backward(const AttentionBackward<float>& pass, PassMemory& pass_memory) {
  const AttentionShape shape = check_attention(pass);
  with_config(Configs(), shape.head_dim, [&]<class B>(B) {
    using C = typename B::Fast;
    Memory memory;
    share_out<C>(memory, pass_memory.workspace, shape);
    const Index heads = memory.work.heads;
    const auto scale = static_cast<float>(attention_scale(pass.options, shape.head_dim));
    device::fill_bytes(memory.is_wide, 0, sizeof(unsigned) * static_cast<std::size_t>(heads),
                       pass.stream);
    dim3 grid = grid_size(heads * std::max(memory.queries.tiles, memory.keys.tiles));
    grid.y = 4;
    launch("split", split_kernel<C>, {.grid = grid, .block = kSplitThreads, .stream = pass.stream},
           pass, memory);
    constexpr int kParts = 16;  // of a head, for which there is seldom work
    grid.x = static_cast<unsigned>(heads) * kParts;
    launch("split_wide", split_wide_kernel<typename B::Robust>,
           {.grid = grid, .block = kSplitThreads, .stream = pass.stream, .begins_early = true},
           pass, memory);
    const auto map = [&](const Half* planes, Index rows) {
      return tensor_map(
          TensorView<const Half, 4>(planes, {heads, kMostPlanes, rows, shape.head_dim}), kBoxRows);
    };
    const Maps maps{map(memory.queries.first, shape.queries), map(memory.keys.first, shape.keys),
                    map(memory.keys.second, shape.keys), map(memory.queries.second, shape.queries)};
    const auto start = [&]<class Each>(Each) {
      if (shape.keys > 0)
        launch("float32_planes", float32_planes_kernel<Each>,
               {.grid = grid_size(heads * memory.keys.tiles),
                .block = kThreads,
                .shared_bytes = Each::kSharedBytes,
                .stream = pass.stream,
                .begins_early = true},
               maps,
               Arguments{shape, memory, pass.d_k, pass.d_v,
                         heads_of_section(heads, shape.queries, 12 * C::kHeadDim), scale,
                         pass.options.causal});
    };
    start(C());
    start(typename B::Robust());
    const Index warps = heads * (memory.work.rows / 16) * (C::kHeadDim / 32);
    constexpr int kWarps = kFinishThreads / kWarpSize;
    launch("finish", finish_float32_kernel<C::kHeadDim>,
           {.grid = grid_size((warps + kWarps - 1) / kWarps),
            .block = kFinishThreads,
            .stream = pass.stream,
            .begins_early = true},
           memory.work.sums, memory.work.rows, pass.d_q, scale);
  });
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.backward.add({.name = name,
                         .device = DeviceKind::kGpu,
                         .run = {.float32 = backward},
                         .unsupported =
                             [](const AttentionProblem& problem) {
                               const std::string why =
                                   why_above("head_dim", problem.shape.head_dim, 128);
                               return why.empty() ? why_not_on_hopper(problem) : why;
                             },
                         .workspace_bytes =
                             [](const AttentionProblem& problem) {
                               std::size_t bytes = 0;
                               with_config(Configs(), problem.shape.head_dim, [&]<class B>(B) {
                                 Memory memory;
                                 bytes =
                                     share_out<typename B::Fast>(memory, nullptr, problem.shape);
                               });
                               return bytes;
                             },
                         .finite_inputs = true});
}

}  // namespace flash::float32_gradients
