// Rung 9: float32 by products of 16-bit numbers, in one pass on wgmma.
//
// New: each float32 number is the sum of two fp16 numbers, its planes, and each of the five
// products the sum of three products of planes (part 3's rung 11 and float32.md). A kernel splits
// Q, K, V and dO beforehand, with a power of two for each tile; P and dS are split in registers.
//
// P is at most 1, so it is multiplied by 2^15. For dS there is a bound: |dP_ij - delta_i| is at
// most |dO_i| |V_j| + |delta_i|, with Euclidean norms. The first kernel stores the largest value of
// each of the three for each tile, and a step takes the power of two that brings its bound to 2^14.
//
// fp16 loses digits of a number that is 2^17 times smaller than the largest of its tile. So
// float64.hpp computes two things: heads with a tile where more than one number in 1024 is so
// small, and keys whose P is below 2^-19 for every query. The first kernel marks the heads. A block
// of the main kernel marks its keys after its last step. The host does not wait for the marks.
//
// A block has 64 keys, and its three warpgroups have different work, as in rung 5:
//
//   group 0   S^T = K Q^T     P^T = exp(S^T - lse)            dV += P^T dO
//   group 1   dP^T = V dO^T   dS^T = P^T * (dP^T - delta)     dK += dS^T Q
//   group 2   orders the copies                               dQ += dS K, added in memory
//
// So a warpgroup has one gradient, and registers for a product of its own. A tensor core cuts its
// sums off, so each step's product starts from 0, and is added to the gradient by FFMA. P goes from
// group 0 to group 1 as float32, dS from group 1 to group 2 as planes. The groups need not be in
// the same step.
//
// The rounding errors of S and lse cancel in S - lse if S is rounded as in the forward pass. So its
// products are added up in the same order, because tensor cores cut off; S is multiplied by the
// scale before lse is subtracted; log2(e) comes last. With a large lse any other order rounds away
// what P needs.
//
// The bottleneck: additions to dQ take 7 %, and shared memory is busy more than half of the time.
// Measured on an H100 (batch 8, 1 head of 64; with the kernels before and after), beside PyTorch's
// memory-efficient kernel in the same run: 4096 keys 0.480 ms, 5.3 times as fast, with a mask 6.6
// times; 8192 keys 5.6 and 6.3 times; 16384 keys 6.82 ms, 5.8 times, with a mask 6.1 times. Heads
// of 128, 4096 keys: 5.5 and 6.0 times. The errors there (relative, Frobenius, with out and lse of
// part 3's rung 11) are 0.6 to 0.7 of PyTorch's for N(0, 1), and 0.5 to 0.8 with Q times 8. In
// float64 (single numbers of 1e3 or 1e6, rows and columns times lognormal factors), on an H200,
// they are at most 0.1 of PyTorch's, but the pass takes 10 to 15 times as long as PyTorch's.
#include "bonus_backward/ladder/float32.hpp"
#include "bonus_backward/ladder/hopper.hpp"

namespace flash::float32_gradients {
namespace {

using namespace gradients;

// 64 keys a block, BlockQ queries a step; shared memory for the queries of two steps.
template <int HeadDim, int BlockQ>
struct Config {
  using Element = Half;
  static constexpr int kPlanes = 2, kHeadDim = HeadDim, kBlockQ = BlockQ, kBlockK = 64;
  // Numbers of a tile's planes.
  static constexpr int kKSize = kPlanes * kBlockK * kHeadDim, kQSize = kPlanes * kBlockQ * kHeadDim,
                       kSSize = kPlanes * kBlockK * kBlockQ;
  static constexpr std::size_t kSharedBytes =
      2 * (2 * kKSize + 4 * kQSize + kSSize) + 4 * kBlockK * kBlockQ + 1024;  // to begin at 1024
};
using Configs = Table<Config<64, 128>, Config<128, 64>>;

constexpr int kThreads = 384, kBoxRows = 64;
constexpr int kColumns = 64;  // of dV or dK at a time: what registers there are for

// P is multiplied by 2^kPShift before it is split. A key whose largest is then below kLeastP has
// lost digits.
constexpr float kPShift = 15, kLeastP = 0x1p-4f;

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

// Shared memory; a tile's planes, and the tiles of the two stages, lie one behind the other.
template <class C>
struct Tiles {
  Half *K, *V, *Q, *dO, *dS;
  float4* P;  // of group 0 for group 1: [kBlockQ / 8][128 threads]

  __device__ __forceinline__ explicit Tiles(Half* shared)
      : K(align_to_1024(shared)),
        V(K + C::kKSize),
        Q(V + C::kKSize),
        dO(Q + 2 * C::kQSize),
        dS(dO + 2 * C::kQSize),
        P(reinterpret_cast<float4*>(dS + C::kSSize)) {}
};

// The work of a block, and a thread's place in its group.
template <class C>
struct Place {
  BlockOfHead block;
  int first, steps, first_tile, key_tile, warp;
  Index first_row;
  unsigned thread, lane;

  __device__ __forceinline__ explicit Place(const Arguments& a)
      : block(a.shape, a.section, a.shape.keys, C::kBlockK, a.causal, false),
        first(a.causal ? block.first / C::kBlockQ : 0),
        steps(a.memory.queries.tiles > first ? a.memory.queries.tiles - first : 0),
        first_tile(block.head * a.memory.queries.tiles + first),
        key_tile(block.head * a.memory.keys.tiles + block.first / C::kBlockK),
        warp(static_cast<int>(threadIdx.x % 128 / 32)),
        first_row(block.head * a.memory.work.rows + first * C::kBlockQ),
        thread(threadIdx.x % 128),
        lane(threadIdx.x % 32) {}
};

// The power of two for a step's dS, from a bound of |dP - delta|.
__device__ __forceinline__ float dS_power(const Memory& memory, int tile, float v_norm) {
  const float2 bounds = memory.row_bounds[tile];
  return scale_for(fmaf(bounds.x, v_norm, bounds.y));
}

// The planes of P^T or dS^T as A: 64 keys, and the queries of a step.
template <class C>
using Weights = Packed<C::kBlockQ>[C::kPlanes];
template <class C>
using Scores = float[C::kBlockQ / 2];
template <class C>
using Gradient = float[C::kHeadDim / 2];

// D = A B^T: 64 keys by all queries of a tile. `kept`: the first plane of the keys.
template <class C>
__device__ __forceinline__ void start_scores(Scores<C>& D, const Packed<C::kHeadDim>& kept,
                                             MatrixDescriptor keys, MatrixDescriptor B) {
  wgmma_fence();
  planes::for_products<C>([&](int b, int a, bool first) {
    FLASH_UNROLL
    for (int k = 0; k < C::kHeadDim / 16; ++k) {
      const MatrixDescriptor columns = B + (b * C::kQSize + k / 4 * C::kBlockQ * 128 + k % 4 * 32);
      if (a == 0)
        wgmma<C::kBlockQ, Half>(D, kept[k], columns, !first || k > 0);
      else
        wgmma<C::kBlockQ, Half>(D, keys + (a * C::kKSize + k / 4 * 64 * 128 + k % 4 * 32), columns,
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
  for (int column = 0; column < C::kHeadDim; column += kColumns) {
    float X[kColumns / 2];
    wgmma_fence();
    planes::for_products<C>([&](int a, int b, bool first) {
      FLASH_UNROLL
      for (int k = 0; k < C::kBlockQ / 16; ++k)
        wgmma<kColumns, Half, true>(
            X, A[a][k], B + (b * C::kQSize + column * C::kBlockQ * 2 + k * 2048), !first || k > 0);
    });
    wgmma_commit();
    if (column == 0) meanwhile();
    wgmma_wait<0>();
    if (column + kColumns == C::kHeadDim) tell(empty, lane);
    FLASH_UNROLL
    for (int i = 0; i < kColumns / 2; ++i)
      D[column / 2 + i] = fmaf(X[i], factor, D[column / 2 + i]);
  }
}

// The planes of D, for the next product.
template <class C>
__device__ __forceinline__ void split_scores(Weights<C>& A, const Scores<C>& D) {
  FLASH_UNROLL
  for (int k = 0; k < C::kBlockQ / 16; ++k) {
    FLASH_UNROLL
    for (int i = 0; i < 4; ++i) {
      std::uint32_t planes[C::kPlanes];
      planes::split<C::kPlanes, Half>(D[8 * k + 2 * i], D[8 * k + 2 * i + 1], planes);
      FLASH_UNROLL
      for (int plane = 0; plane < C::kPlanes; ++plane) A[plane][k][i] = planes[plane];
    }
  }
}

// Group 0 (kIsV: dV, from P) or 1 (dK, from dS).
template <bool kIsV, class C>
__device__ __forceinline__ void compute_gradient(const Arguments& a, const Tiles<C>& tiles,
                                                 KeyBarriers& barriers, const Place<C>& at) {
  constexpr int kBlockQ = C::kBlockQ;
  const Memory& memory = a.memory;
  const unsigned lane = at.lane;
  // The tiles of the first product, keys and queries, and the queries of the second one.
  Half *const keys = kIsV ? tiles.K : tiles.V, *const queries = kIsV ? tiles.Q : tiles.dO,
              *const others = kIsV ? tiles.dO : tiles.Q;
  Barrier *const queries_full = kIsV ? barriers.Q_full : barriers.dO_full,
                 *const others_full = kIsV ? barriers.dO_full : barriers.Q_full,
                 *const queries_empty = kIsV ? barriers.Q_empty : barriers.dO_empty,
                 *const others_empty = kIsV ? barriers.dO_empty : barriers.Q_empty;
  const float *const queries_factor =
                         kIsV ? memory.queries.first_factor : memory.queries.second_factor,
                     *const others_factor =
                         kIsV ? memory.queries.second_factor : memory.queries.first_factor,
                     *const numbers_of_rows =
                         (kIsV ? memory.work.lse : memory.work.delta) + at.first_row;
  const float keys_factor = kIsV ? memory.keys.first_factor[at.key_tile] * a.scale
                                 : memory.keys.second_factor[at.key_tile],
              v_norm = memory.v_norms[at.key_tile];
  const Mask<kBlockQ> mask(static_cast<int>(a.shape.keys) - at.block.first, a.causal, at.warp,
                           lane);
  Half* const my_dS = chunk_of<kBlockQ>(tiles.dS, static_cast<int>(lane / 16 * 8 + lane % 8),
                                        2 * at.warp + static_cast<int>(lane / 8 % 2));
  Gradient<C> D;
  FLASH_UNROLL
  for (float& x : D) x = 0;
  __half2 largest[2] = {__float2half2_rn(0), __float2half2_rn(0)};  // P of the thread's rows
  Packed<C::kHeadDim> kept;
  if (at.steps > 0) {
    wait(kIsV ? barriers.K_full : barriers.V_full, 0);
    FLASH_UNROLL
    for (int k = 0; k < C::kHeadDim / 16; ++k)
      ldmatrix(kept[k], chunk_of<64>(keys, 16 * at.warp + static_cast<int>(lane % 16),
                                     2 * k + static_cast<int>(lane / 16)));
  }

  for (int n = 0; n < at.steps; ++n) {
    const int stage = __shfl_sync(kAllLanes, n % 2, 0), parity = n / 2 % 2;
    float factor = keys_factor * queries_factor[at.first_tile + n],
          gradient_factor = others_factor[at.first_tile + n];
    Scores<C> S;                  // or dP
    float2 numbers[kBlockQ / 8];  // lse or delta of the thread's columns
    Weights<C> weights;
    wait(queries_full[stage], parity);
    start_scores<C>(S, kept, by_rows(keys), by_rows(queries + stage * C::kQSize));
    FLASH_UNROLL
    for (int i = 0; i < kBlockQ / 8; ++i)
      numbers[i] =
          *reinterpret_cast<const float2*>(numbers_of_rows + n * kBlockQ + 8 * i + lane % 4 * 2);
    wgmma_wait<0>();
    tell(queries_empty[stage], lane);
    if constexpr (kIsV) {
      FLASH_UNROLL
      for (int i = 0; i < kBlockQ / 2; ++i) {
        const float lse = i % 2 == 0 ? numbers[i / 4].x : numbers[i / 4].y;
        // The usual scale of heads of 64 is 1/8: the product is exact.
        const float difference =
            C::kHeadDim == 64 ? fmaf(S[i], factor, -lse) : __fmul_rn(S[i], factor) - lse;
        S[i] = exp2_approximate(fmaf(difference, kLog2E, kPShift));
      }
      mask.apply(S, (at.first + n) * kBlockQ - at.block.first);
      wait(barriers.P_empty, n % 2 ^ 1);
      FLASH_UNROLL
      for (int i = 0; i < kBlockQ / 8; ++i)
        tiles.P[i * 128 + at.thread] = {S[4 * i], S[4 * i + 1], S[4 * i + 2], S[4 * i + 3]};
      tell(barriers.P_full, lane);
      split_scores<C>(weights, S);
    } else {
      const float power = dS_power(memory, at.first_tile + n, v_norm), of_P = power * 0x1p-15f;
      factor *= of_P;
      gradient_factor *= factor_of(power);
      wait(barriers.P_full, n % 2);
      FLASH_UNROLL
      for (int i = 0; i < kBlockQ / 8; ++i) {
        const float4 P = tiles.P[i * 128 + at.thread];
        const float2 d = {numbers[i].x * of_P, numbers[i].y * of_P};
        float* const four = &S[4 * i];
        four[0] = P.x * fmaf(four[0], factor, -d.x);
        four[1] = P.y * fmaf(four[1], factor, -d.y);
        four[2] = P.z * fmaf(four[2], factor, -d.x);
        four[3] = P.w * fmaf(four[3], factor, -d.y);
      }
      tell(barriers.P_empty, lane);
      split_scores<C>(weights, S);
      wait(barriers.dS_empty, n % 2 ^ 1);
      FLASH_UNROLL
      for (int plane = 0; plane < C::kPlanes; ++plane) {
        FLASH_UNROLL
        for (int k = 0; k < kBlockQ / 16; ++k)
          stmatrix<true>(my_dS + plane * 64 * kBlockQ + k * 16 * 64, weights[plane][k]);
      }
      fence_proxy_async();
      tell(barriers.dS_full, lane);
    }
    wait(others_full[stage], parity);
    add_product<C>(D, weights, by_columns<kBlockQ>(others + stage * C::kQSize), others_empty[stage],
                   lane, gradient_factor, [&] {
                     if constexpr (kIsV) {
                       FLASH_UNROLL
                       for (int i = 0; i < kBlockQ / 4; ++i)
                         largest[i % 2] =
                             __hmax2(largest[i % 2],
                                     reinterpret_cast<const __half2&>(weights[0][i / 4][i % 4]));
                     }
                   });
  }

  const TensorView<float, 4>& to = kIsV ? a.d_v : a.d_k;
  FLASH_UNROLL
  for (int r = 0; r < 2; ++r) {
    const int key = at.block.first + 16 * at.warp + static_cast<int>(lane / 4) + 8 * r;
    if constexpr (kIsV) {
      const float2 two = __half22float2(largest[r]);
      const bool is_lost = warp_max<4>(fmaxf(two.x, two.y)) < kLeastP;
      if (is_lost && key < a.shape.keys && (!a.causal || key < a.shape.queries))
        memory.exceptions.add_key(at.block.head, key, a.shape);
    }
    if (key >= to.extent(2)) continue;
    float* const row = &to(at.block.b, at.block.h, key, 0) + lane % 4 * 2;
    const float factor = kIsV ? 0x1p-15f : a.scale;
    FLASH_UNROLL
    for (int c = 0; c < C::kHeadDim / 8; ++c)
      if (8 * c < to.extent(3))
        *reinterpret_cast<float2*>(row + 8 * c) = {D[4 * c + 2 * r] * factor,
                                                   D[4 * c + 2 * r + 1] * factor};
  }
}

// Group 2.
template <class C>
__device__ __forceinline__ void load_and_add_dQ(const Maps& maps, const Arguments& a,
                                                const Tiles<C>& tiles, KeyBarriers& barriers,
                                                const Place<C>& at) {
  constexpr int kD = C::kHeadDim, kBlockQ = C::kBlockQ;
  const Memory& memory = a.memory;
  const auto load = [&]<int kRows>(std::integral_constant<int, kRows>, Half* tile,
                                   const TensorMap& map, Barrier& full, int row0) {
    arrive_expecting(full, 2 * C::kPlanes * kRows * kD);
    FLASH_UNROLL
    for (int plane = 0; plane < C::kPlanes; ++plane) {
      FLASH_UNROLL
      for (int slab = 0; slab < kD / 64; ++slab) FLASH_UNROLL
      for (int row = 0; row < kRows; row += kBoxRows)
        tma_load(tile + (plane * kD + slab * 64) * kRows + row * 64, map, full, 64 * slab,
                 row0 + row, plane, at.block.head);
    }
  };
  const auto load_step = [&](int n) {
    constexpr std::integral_constant<int, 64> kKeys;
    constexpr std::integral_constant<int, kBlockQ> kQueries;
    const int stage = n % 2, parity = n / 2 % 2, i0 = (at.first + n) * kBlockQ;
    if (n == 0) load(kKeys, tiles.K, maps.k, barriers.K_full, at.block.first);
    wait(barriers.Q_empty[stage], parity ^ 1);
    load(kQueries, tiles.Q + stage * C::kQSize, maps.q, barriers.Q_full[stage], i0);
    if (n == 0) load(kKeys, tiles.V, maps.v, barriers.V_full, at.block.first);
    wait(barriers.dO_empty[stage], parity ^ 1);
    load(kQueries, tiles.dO + stage * C::kQSize, maps.d_out, barriers.dO_full[stage], i0);
  };
  if (at.thread == 0)
    for (int n = 0; n < 2 && n < at.steps; ++n) load_step(n);
  __syncwarp();  // no race without it: it brings the warp together for wgmma
  const float k_factor = memory.keys.first_factor[at.key_tile],
              v_norm = memory.v_norms[at.key_tile];
  float* const sums =
      memory.work.sums + at.first_row * kD + place_of_sums<kD>(16 * at.warp, 0, at.lane);
  const MatrixDescriptor dS = by_rows(tiles.dS), K = by_columns<64>(tiles.K);
  if (at.steps > 0)
    wait(barriers.K_full, 0);  // no race without it: group 0 has waited before it sent P
  for (int n = 0; n < at.steps; ++n) {
    const float factor = k_factor * factor_of(dS_power(memory, at.first_tile + n, v_norm));
    Gradient<C> dQ[kBlockQ / 64];
    wait(barriers.dS_full, n % 2);
    wgmma_fence();
    FLASH_UNROLL
    for (int m = 0; m < kBlockQ / 64; ++m)
      planes::for_products<C>([&](int s, int k_plane, bool is_first) {
        FLASH_UNROLL
        for (int k = 0; k < 4; ++k)
          wgmma<kD, Half, true>(dQ[m], dS + (s * C::kSSize + m * 64 * 128 + k * 32),
                                K + (k_plane * C::kKSize + k * 2048), !is_first || k > 0);
      });
    wgmma_commit();
    wgmma_wait<0>();
    tell(barriers.dS_empty, at.lane);
    FLASH_UNROLL
    for (int m = 0; m < kBlockQ / 64; ++m) {
      FLASH_UNROLL
      for (int i = 0; i < kD / 8; ++i) {
        const float* const D = dQ[m] + 4 * i;
        const float four[4] = {D[0] * factor, D[1] * factor, D[2] * factor, D[3] * factor};
        add_in_memory(sums + (n * kBlockQ + 64 * m) * kD + i * 128, four);
      }
    }
    if (at.thread == 0 && n + 2 < at.steps) load_step(n + 2);
    __syncwarp();  // no race without it: as above
  }
}

template <class C>
__global__ void __launch_bounds__(kThreads, 1)
    float32_planes_kernel(const __grid_constant__ Maps maps, Arguments a) {
  __shared__ KeyBarriers barriers;
  FLASH_DYNAMIC_SHARED(Half, shared);
  const Tiles<C> tiles(shared);
  const Place<C> at(a);
  wait_for_kernel_before();
  if (a.memory.exceptions.heads[at.block.head] != 0) return;
  if (threadIdx.x == 0) barriers.init_all();
  __syncthreads();
  if (threadIdx.x >= 256) {
    give_registers<104>();
    load_and_add_dQ<C>(maps, a, tiles, barriers, at);
  } else {
    take_registers<200>();
    if (threadIdx.x < 128)
      compute_gradient<true, C>(a, tiles, barriers, at);
    else
      compute_gradient<false, C>(a, tiles, barriers, at);
  }
}

// ---- Around the kernels -------------------------------------------------------------------------

void backward(const AttentionBackward<float>& pass, PassMemory& pass_memory) {
  const AttentionShape shape = check_attention(pass);
  with_config(Configs(), shape.head_dim, [&]<class C>(C) {
    Memory memory;
    share_out<C>(memory, pass_memory.workspace, shape);
    const Index heads = memory.work.heads;
    const auto scale = static_cast<float>(attention_scale(pass.options, shape.head_dim));
    device::fill_bytes(memory.exceptions.any, 0,
                       sizeof(unsigned) * static_cast<std::size_t>(Exceptions::count(shape)),
                       pass.stream);
    dim3 grid = grid_size(heads * std::max(memory.queries.tiles, memory.keys.tiles));
    grid.y = 4;
    launch("split", split_kernel<C>, {.grid = grid, .block = kSplitThreads, .stream = pass.stream},
           pass, memory);
    const auto map = [&](const Half* planes, Index rows) {
      return tensor_map(
          TensorView<const Half, 4>(planes, {heads, C::kPlanes, rows, shape.head_dim}), kBoxRows);
    };
    const Maps maps{map(memory.queries.first, shape.queries), map(memory.keys.first, shape.keys),
                    map(memory.keys.second, shape.keys), map(memory.queries.second, shape.queries)};
    if (shape.keys > 0)
      launch("float32_planes", float32_planes_kernel<C>,
             {.grid = grid_size(heads * memory.keys.tiles),
              .block = kThreads,
              .shared_bytes = C::kSharedBytes,
              .stream = pass.stream,
              .begins_early = true},
             maps,
             Arguments{shape, memory, pass.d_k, pass.d_v,
                       heads_of_section(heads, shape.queries, 12 * C::kHeadDim), scale,
                       pass.options.causal});
    finish<C::kHeadDim>(pass, memory.work, scale);
    float64::start<C::kHeadDim, false>(pass, memory.work, memory.exact, memory.exceptions, scale);
    float64::start<C::kHeadDim, true>(pass, memory.work, memory.exact, memory.exceptions, scale);
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
                               with_config(Configs(), problem.shape.head_dim, [&]<class C>(C) {
                                 Memory memory;
                                 bytes = share_out<C>(memory, nullptr, problem.shape);
                               });
                               return bytes;
                             },
                         .finite_inputs = true});
}

}  // namespace flash::float32_gradients
