// Rung 11: float32 by products of 16-bit numbers, at the speed of wgmma.
//
// New: each float32 number is the sum of two or three 16-bit numbers, its planes (planes.hpp), and
// a product of float32 numbers the sum of three or six products of planes, each of which a tensor
// core computes exactly. Two planes of half need a power of two for each tile, since half reaches
// only from 2^-24 to 2^16; three planes of bfloat16 do not. Rung 10 does the same with TF32, which
// wgmma takes at half the rate, and V only transposed.
//
// A kernel splits K and V beforehand: each of their tiles is read once for every tile of Q. Q
// itself is read once, so the warpgroups split it themselves, each row with a power of two of its
// own, and P in registers. The powers of two cost nothing: they go into multiplications that are
// there.
//
// A tensor core cuts its sums off towards zero (float32.md), so a sum over all keys would drift.
// P V of a step starts from 0, and is added to O by ordinary instructions, which round.
//
// `..._fast` has two planes of half, `..._robust` three of bfloat16. Half loses digits where a tile
// of K or V has numbers more than 2^16 times as large as others. The kernel that splits marks the
// heads of which more than 1 number of 1024 in a tile loses digits. Without a suffix each head goes
// to the kernel that it needs: both are launched, and each skips the heads that the other one
// computes. The host waits for nothing.
//
// The rest is rung 9's: blocks that stay and draw their work, warpgroups that take turns. With two
// planes the maximum may stay 8 behind (in base 2). With three it is the true one again: a step has
// six times as many products, and the exponentials have time. Where there are few queries, a
// block takes 64 instead of 128, so that more multiprocessors have one.
//
// The bottleneck is the tensor cores: products of planes alone run at 276 TFLOP/s, of 330 in the
// data sheet (robust: 138 of 165), this at 222 where sequences are long. Splitting takes a tenth of
// the time where they are short, and launching four kernels (two that split, two that compute)
// 0.008 ms more than one. Measured on an H200 (batch 8, 1 head of 64), beside PyTorch's
// memory-efficient kernel in the same run: 1024 keys 0.035 ms, 3.5 times as fast; 4096 keys 0.184
// ms, 6.2 times, with a mask 7.1 times; 16384 keys 7.1 to 7.3 times. Heads of 128: 4.7 to 5.6 times
// from 4096 keys on. `..._robust`: 4.1 to 5.0 times, heads of 128 2.4 to 3.0 times. The error is
// 0.6 to 0.75 of PyTorch's, that of `..._robust` 0.4 to 0.75 (relative, Frobenius).
#include <algorithm>
#include <cmath>

#include "part3_flash_cuda/ladder/planes.hpp"

namespace flash::float32_planes {
namespace {

using namespace hopper;
using namespace planes;
using mma::rescale;

template <class T, int Planes, int HeadDim, int BlockK, int Stages, int Groups>
struct Config {
  using Element = T;
  static constexpr int kPlanes = Planes, kHeadDim = HeadDim, kBlockK = BlockK, kStages = Stages,
                       kGroups = Groups, kBlockQ = 64 * Groups, kThreads = 128 * (Groups + 1);
  static constexpr int kRowsOfWarp = 16;
  static constexpr bool kScales = kPlanes == 2;
  // P is exp2(s - m + kHeadroom), and m may be kMostRise below the largest score: P is at most 2^14
  // in half, where small numbers lose digits, and 1 in bfloat16. O is kUnit times the sum of P V.
  static constexpr float kMostRise = kScales ? 8 : 0, kHeadroom = kScales ? 6 : 0,
                         kUnit = kScales ? 0x1p-14f : 1;
  // A tile for each plane; each warpgroup has a Q of its own. V's tiles are as K's.
  using QPlanes = Tile<T, 64, kHeadDim>[kPlanes];
  using KPlanes = Tile<T, kBlockK, kHeadDim>[kPlanes];
  using Tiles = mma::Tiles<QPlanes[kGroups], KPlanes, kStages>;
  static constexpr std::size_t kSharedBytes = sizeof(Tiles) + 1024;  // to begin at 1024 bytes
};

struct Arguments {
  TensorView<const float, 4> q;
  TensorView<float, 4> out;
  TensorView<float, 3> lse;
  AttentionShape shape;
  // The scale is `power`, a power of two, times a number between 1 and 2. m is in units of 1 /
  // power.
  float power, rest, rest_in_base_2;
  bool causal;
  const float *k_factor, *v_factor;
};

// The work of a pass: of all heads, or of those of the choice that are `robust`.
struct WorkQueue {
  unsigned count;
  int section;
  Counters* counters;
  const unsigned* is_robust;
  bool robust;
};

constexpr int kNone = -1;  // in place of Work::some_see: no work is left

// Starts the copies of all planes of a step's keys.
template <class C>
__device__ __forceinline__ void load_planes(typename C::KPlanes& tiles, const TensorMap& map,
                                            Barrier& barrier, int row0, int head) {
  arrive_expecting(barrier, sizeof tiles);
  FLASH_UNROLL
  for (int plane = 0; plane < C::kPlanes; ++plane) {
    FLASH_UNROLL
    for (int slab = 0; slab < C::kHeadDim / 64; ++slab)
      tma_load(tiles[plane].slabs[slab], map, barrier, 64 * slab, row0, plane, head);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    planes_kernel(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                  const __grid_constant__ TensorMap v_map, Arguments a, WorkQueue queue) {
  using T = typename C::Element;
  wait_for_kernel_before();
  if (queue.is_robust != nullptr && queue.robust && queue.counters->robust_heads == 0) return;
  __shared__ Pipeline<2> work_pipeline;
  __shared__ Pipeline<C::kStages> K_pipeline, V_pipeline;
  __shared__ Work works[2];
  __shared__ float Q_factor[C::kGroups][64];
  using Tiles = typename C::Tiles;
  FLASH_DYNAMIC_SHARED(Tiles, shared);
  Tiles* const smem = align_to_1024(shared);

  if (threadIdx.x == 0) {
    work_pipeline.init(4 * C::kGroups);
    K_pipeline.init(C::kGroups);
    V_pipeline.init(C::kGroups);
    fence_barrier_init();
  }
  __syncthreads();
  unsigned s = 0;  // counts the steps of all the block's work

  if (threadIdx.x < 128) {
    if constexpr (C::kGroups > 1) give_registers<40>();
    if (threadIdx.x != 0) return;
    const int heads = static_cast<int>(a.shape.heads);
    const auto draw = [&] {
      return gridDim.x + atomicAdd(&queue.counters->next[queue.robust], 1u);
    };
    const auto work_from = [&](unsigned number) {
      Work work;
      for (; number < queue.count; number = draw()) {
        work = Work(a.shape, a.causal, C::kBlockQ, static_cast<int>(number), queue.section);
        if (queue.is_robust == nullptr || queue.is_robust[work.b * heads + work.h] == queue.robust)
          return work;
      }
      work.some_see = kNone;
      return work;
    };
    Work work = work_from(blockIdx.x);
    for (unsigned i = 0;; ++i) {
      work_pipeline.wait_empty(i);
      works[work_pipeline.stage(i)] = work;
      arrive(work_pipeline.full(i));
      if (work.some_see == kNone) return;
      const int head = work.b * heads + work.h;
      for (int n = 0, steps = count_steps<C>(work.some_see); n < steps; ++n, ++s) {
        K_pipeline.wait_empty(s);
        load_planes<C>(smem->K[K_pipeline.stage(s)], k_map, K_pipeline.full(s), n * C::kBlockK,
                       head);
        if (n == steps - 1) {
          work = work_from(draw());
          if (work.some_see != kNone) {
            FLASH_UNROLL
            for (int column = 0; column < C::kHeadDim; column += 32)
              tma_prefetch(q_map, column, work.i0, work.h, work.b);
          }
        }
        V_pipeline.wait_empty(s);
        load_planes<C>(smem->V[V_pipeline.stage(s)], v_map, V_pipeline.full(s), n * C::kBlockK,
                       head);
      }
    }
  }

  if constexpr (C::kGroups > 1) take_registers<232>();
  const unsigned thread = threadIdx.x - 128;
  const int group = __shfl_sync(kAllLanes, static_cast<int>(thread / 128), 0);
  const bool is_leader = thread % 128 == 0;
  const Lane<C> lane(thread);
  const auto Q = smem->Q[group][0].by_columns();
  const Turns<C> turns(static_cast<int>(thread));
  Scores<C> S;
  std::uint32_t P[C::kPlanes][C::kBlockK / 16][4];
  float X[C::kHeadDim / 8][4];  // P V of one step
  float O[C::kHeadDim / 8][4];
  float m[2] = {}, l[2] = {}, alpha[2], q_scale[2] = {a.power, a.power};

  const auto QK = [&](unsigned step) {
    const auto K = smem->K[K_pipeline.stage(step)][0].by_columns();
    wgmma_fence();
    for_products<C>([&](int q_plane, int k_plane, bool first) {
      FLASH_UNROLL
      for (int k = 0; k < C::kHeadDim / 16; ++k)
        wgmma<C::kBlockK, T>(flat(S), Q[k] + q_plane * sizeof smem->Q[0][0],
                             K[k] + k_plane * sizeof smem->K[0][0], !first || k > 0);
    });
    wgmma_commit();
  };
  const auto PV = [&](unsigned step) {
    V_pipeline.wait_full(step);
    const auto V = smem->V[V_pipeline.stage(step)][0].by_rows();
    wgmma_fence();
    for_products<C>([&](int p, int v, bool first) {
      FLASH_UNROLL
      for (int k = 0; k < C::kBlockK / 16; ++k)
        wgmma<C::kHeadDim, T, true>(flat(X), P[p][k], V[k] + v * sizeof smem->V[0][0],
                                    !first || k > 0);
    });
    wgmma_commit();
  };
  // S becomes P in float32. Returns whether O has to be multiplied by alpha, for a row of the warp.
  const auto softmax = [&](int seen, int i0, int n, float k_scale) {
    if ((n + 1) * C::kBlockK > seen)
      mask_scores<C>(S, static_cast<int>(a.shape.keys), a.causal, i0, n * C::kBlockK, lane);
    float largest[2] = {-INFINITY, -INFINITY};
    // Not 0, which would make NaN of a masked score.
    const float unit[2] = {fmaxf(q_scale[0] * k_scale, 0x1p-126f),
                           fmaxf(q_scale[1] * k_scale, 0x1p-126f)};
    FLASH_UNROLL
    for (int k = 0; k < C::kBlockK / 8; ++k) {
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i) largest[i / 2] = fmaxf(largest[i / 2], S[k][i]);
    }
    FLASH_UNROLL
    for (int row = 0; row < 2; ++row) largest[row] = warp_max<4>(largest[row]) * unit[row];
    const bool rises =
        __any_sync(kAllLanes, (largest[0] - m[0]) * a.rest_in_base_2 > C::kMostRise ||
                                  (largest[1] - m[1]) * a.rest_in_base_2 > C::kMostRise);
    if (rises) {
      FLASH_UNROLL
      for (int row = 0; row < 2; ++row) {
        const float m_new = fmaxf(m[row], largest[row]);
        alpha[row] = exp2_approximate((m[row] - m_new) * a.rest_in_base_2);
        l[row] *= alpha[row];
        m[row] = m_new;
      }
    }
    // The step's sum by itself: where one key has most of a row's weight, l is large, and small
    // weights that are added to l one by one lose digits.
    float sum[2] = {};
    FLASH_UNROLL
    for (int k = 0; k < C::kBlockK / 8; ++k) {
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i)
        // The difference first: a rounded m * scale may be off by more than P can take.
        sum[i / 2] += S[k][i] = exp2_approximate(
            fmaf(fmaf(S[k][i], unit[i / 2], -m[i / 2]), a.rest_in_base_2, C::kHeadroom));
    }
    l[0] += sum[0];
    l[1] += sum[1];
    return rises;
  };
  const auto add_X = [&](float v_scale) {
    FLASH_UNROLL
    for (int c = 0; c < C::kHeadDim / 8; ++c) {
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i) O[c][i] = fmaf(X[c][i], v_scale * C::kUnit, O[c][i]);
    }
  };
  const auto split_P = [&] {
    FLASH_UNROLL
    for (int k = 0; k < C::kBlockK / 16; ++k) {
      FLASH_UNROLL
      for (int i = 0; i < 4; ++i) {
        std::uint32_t planes[C::kPlanes];
        const float* const two = &S[2 * k + i / 2][i % 2 * 2];
        split<C::kPlanes, T>(two[0], two[1], planes);
        FLASH_UNROLL
        for (int p = 0; p < C::kPlanes; ++p) P[p][k][i] = planes[p];
      }
    }
  };

  for (unsigned i = 0;; ++i) {
    work_pipeline.wait_full(i);
    const Work& work = works[work_pipeline.stage(i)];
    // From one lane: ptxas then knows that what follows is the same in all of them.
    const int some_see = __shfl_sync(kAllLanes, work.some_see, 0), steps = count_steps<C>(some_see);
    if (some_see == kNone) break;
    // Nobody reads the Q before any more.
    sync_named(8 + group, 128);  // no race without it: wgmma holds the warps together, unpromised
    load_Q<C>(smem->Q[group], Q_factor[group], a.q, work.b, work.h, work.i0 + 64 * group,
              thread % 128);
    fence_proxy_async();
    sync_named(8 + group, 128);
    if constexpr (C::kScales) {
      q_scale[0] = Q_factor[group][lane.row(0) % 64] * a.power;
      q_scale[1] = Q_factor[group][lane.row(1) % 64] * a.power;
    }
    const int seen = work.all_see, i0 = work.i0;
    int tile = (work.b * static_cast<int>(a.shape.heads) + work.h) *
               count_steps<C>(static_cast<int>(a.shape.keys));  // of K and V
    m[0] = m[1] = -INFINITY;
    l[0] = l[1] = 0;
    float k_scale = C::kScales ? a.k_factor[tile] : 1;
    K_pipeline.wait_full(s);
    turns.begin();
    QK(s);
    turns.end();
    wgmma_wait<0>();
    if (is_leader) K_pipeline.release(s);
    softmax(seen, i0, 0, k_scale);
    split_P();
    FLASH_UNROLL
    for (float& x : flat(O)) x = 0;
    int n = 1;
    for (++s; n < steps; ++n, ++s, ++tile) {
      k_scale = C::kScales ? a.k_factor[tile + 1] : 1;
      const float v_scale = C::kScales ? a.v_factor[tile] : 1;
      K_pipeline.wait_full(s);
      turns.begin();
      QK(s);
      PV(s - 1);
      turns.end();
      wgmma_wait<1>();
      if (is_leader) K_pipeline.release(s);
      const bool rises = softmax(seen, i0, n, k_scale);
      wgmma_wait<0>();
      if (is_leader) V_pipeline.release(s - 1);
      add_X(v_scale);
      if (rises) {
        rescale(O, 0, alpha[0]);
        rescale(O, 1, alpha[1]);
      }
      split_P();
    }
    const float v_scale = C::kScales ? a.v_factor[tile] : 1;
    turns.begin();
    PV(s - 1);
    turns.end();
    wgmma_wait<0>();
    if (is_leader) V_pipeline.release(s - 1);
    add_X(v_scale);
    FLASH_UNROLL
    for (int row = 0; row < 2; ++row) {
      const float sum = warp_sum<4>(l[row]), factor = 1 / (sum * C::kUnit);
      const int query = work.i0 + lane.row(row);
      // Rounded as scores times the scale are in a backward pass: where l is 1, S - lse is then 0.
      const float largest = __fmul_rn(m[row], a.rest);
      store_lse<C>(fmaf(log2f(sum) - C::kHeadroom, kLn2, largest), query, a.lse, work, lane);
      if (query >= a.out.extent(2)) continue;
      float* const to = &a.out(work.b, work.h, query, 0) + lane.t2;
      FLASH_UNROLL
      for (int c = 0; c < C::kHeadDim / 8; ++c)
        if (8 * c < a.out.extent(3))
          *reinterpret_cast<float2*>(to + 8 * c) = {O[c][2 * row] * factor,
                                                    O[c][2 * row + 1] * factor};
    }
    __syncwarp();
    if (lane.id == 0) work_pipeline.release(i);
  }
  turns.close();
}

// ---- Around the kernels -------------------------------------------------------------------------

std::string why_not_here(const AttentionProblem& problem) {
  if (problem.shape.keys == 0) return "keys is 0; it must be at least 1";
  if (std::string why = why_above("head_dim", problem.shape.head_dim, 128); !why.empty())
    return why;
  return why_not(problem);
}

template <class C>
void start_attention(const AttentionForward<float>& pass, const Split<C>& split,
                     const Choice& choice, Counters* counters) {
  const AttentionShape shape = pass.shape();
  const Index heads = shape.batch * shape.heads, work = count_work<C>(shape), blocks = work / heads;
  constexpr Index kInCache = 16 << 20;  // K and V of a section; the L2 cache of an H200 has 50 MB
  const Index fit = kInCache / (4 * C::kPlanes * shape.keys * shape.head_dim),
              least = (4 * device::multiprocessors() + blocks - 1) / blocks,
              section = std::clamp<Index>(fit, std::min(least, heads), heads);
  const auto map = [&](const typename C::Element* planes) {
    return tensor_map(TensorView<const typename C::Element, 4>(
                          planes, {heads, C::kPlanes, shape.keys, shape.head_dim}),
                      C::kBlockK);
  };
  const auto scale = static_cast<float>(attention_scale(pass.options, shape.head_dim));
  const float power = scale == 0 ? 1 : std::exp2(static_cast<float>(std::ilogb(scale)));
  LaunchConfig config =
      launch_config(C(), std::min<Index>(work, device::multiprocessors()), pass.stream);
  config.begins_early = true;
  launch(
      "float32_planes", planes_kernel<C>, config, tensor_map(pass.q, C::kBlockQ), map(split.k),
      map(split.v),
      Arguments{pass.q, pass.out, pass.lse, shape, power, scale / power,
                scale_in_base_2(pass) / power, pass.options.causal, split.k_factor, split.v_factor},
      WorkQueue{grid_size(work).x, static_cast<int>(section), counters, choice.is_robust,
                !C::kScales});
}

// Little work: as many blocks with half as many queries each.
using Fast = Table<Config<Half, 2, 64, 128, 2, 1>, Config<Half, 2, 64, 128, 2, 2>,
                   Config<Half, 2, 128, 64, 2, 1>, Config<Half, 2, 128, 64, 2, 2>>;
using Robust = Table<Config<BFloat16, 3, 64, 96, 2, 2>, Config<BFloat16, 3, 128, 32, 2, 2>>;

// Calls use(C()) for the configuration of a table that fits the problem best.
template <class Table, class Use>
void use_best(Table table, const AttentionShape& shape, Use use) {
  const Index work = shape.batch * shape.heads * ((shape.queries + 127) / 128);
  const auto fits = [&]<class C>(C config) {
    return shape.head_dim <= C::kHeadDim && has_room(config) &&
           (C::kGroups > 1 || 2 * work <= device::multiprocessors());
  };
  if (!use_first(table, fits, use)) throw_no_room(shape.head_dim);
}

// All heads by one kind of kernel. Without a pass it returns the bytes of workspace.
template <class Table>
std::size_t forced(const AttentionShape& shape, void* memory, const AttentionForward<float>* pass) {
  Workspace space{static_cast<char*>(memory)};
  use_best(Table(), shape, [&]<class C>(C) {
    Counters* const counters = space.take<Counters>(1);
    const Split<C> split = space.split<C>(shape);
    if (pass == nullptr) return;
    start_split(*pass, split, {}, counters);
    start_attention(*pass, split, {}, counters);
  });
  return space.used;
}

// Each head by the kernel that its numbers need; the device decides.
std::size_t by_range(const AttentionShape& shape, void* memory,
                     const AttentionForward<float>* pass) {
  Workspace space{static_cast<char*>(memory)};
  use_best(Fast(), shape, [&]<class F>(F) {
    use_best(Robust(), shape, [&]<class R>(R) {
      const int tiles = Workspace::count_tiles<F>(shape);
      const Index heads = shape.batch * shape.heads;
      Counters* const counters = space.take<Counters>(1);
      const Choice choice{space.take<unsigned>(2 * heads * tiles), space.take<unsigned>(heads),
                          tiles};
      const Split<F> fast = space.split<F>(shape);
      const Split<R> robust = space.split<R>(shape);
      if (pass == nullptr) return;
      start_split(*pass, fast, choice, counters);
      start_split(*pass, robust, choice, counters);
      start_attention(*pass, fast, choice, counters);
      start_attention(*pass, robust, choice, counters);
    });
  });
  return space.used;
}

}  // namespace

FLASH_ENTER(registry, name) {
  const auto add = [&](const char* suffix, auto run) {
    registry.forward.add(
        {.name = std::string(name) + suffix,
         .device = DeviceKind::kGpu,
         .run = {.float32 =
                     [run](const AttentionForward<float>& pass, PassMemory& memory) {
                       const AttentionShape shape = check_attention(pass);
                       run(shape, memory.workspace, &pass);
                     }},
         .unsupported = why_not_here,
         .workspace_bytes =
             [run](const AttentionProblem& problem) {
               return run(problem.shape, nullptr, nullptr);
             },
         .finite_inputs = true});
  };
  add("_fast", forced<Fast>);
  add("_robust", forced<Robust>);
  add("", by_range);
}

}  // namespace flash::float32_planes
