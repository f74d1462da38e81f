// Step 9 of the ladder: a block stays, and takes one tile of the work after the other.
//
// New: as many blocks as the GPU has multiprocessors, and each draws its next tile from a counter
// in device memory. So the next tile's Q, K and V are loaded while this one is still computed, and
// its first product, S = Q K^T, is started together with the last P V of this one. That needs two
// buffers for Q; heads of 256 have room for one, and go without.
//
// O leaves by TMA: each warp puts its rows into the memory of the tile's Q, which nobody reads any
// more. Only O / l stands between the last product of a tile and the first softmax of the next one;
// the copy and lse come behind that.
//
// With a causal mask tiles differ in length, and the counter gives the next one to whoever is free.
// With fixed tiles for each block it was 16 % slower. Long tiles come first, among the heads of a
// section, whose K and V stay in the L2 cache.
//
// Short sequences of heads of 64 get four warpgroups and steps of 64 keys: 1024 queries are 4 tiles
// of 256, but 5 1/3 of 192. With a causal mask, warpgroups there skip the steps of which they see
// nothing. Elsewhere this costs more than it saves: ptxas then no longer knows that all lanes of a
// warp take the same number of steps, and computes addresses in every lane anew.
//
// The bottleneck: a step of 128 keys and heads of 128 takes 2300 clocks, of which the tensor cores
// need 2048. Between two tiles they wait about 2000 clocks more, for O / l and the first softmax; a
// tile of 1024 keys has 8 steps, or with a mask 4.5 on average.
// Measured on an H200 (bfloat16, 16 heads of 128, 4096 keys): 740 TFLOP/s, 1.10 times cuDNN's 675
// in the same run; 16384 keys: 765, 1.11 times; 1024 keys and a mask: 460, 1.06 times. Heads of 64:
// 1.21 to 1.38 times, heads of 256: 1.07 to 1.28 times. With q 8 times as large: 1.00 to 1.24
// times. On other days and cards cuDNN was up to 8 % slower beside it.
#include <algorithm>

#include "part3_flash_cuda/ladder/warpgroups.hpp"

namespace flash::persistent {
namespace {

using namespace hopper;

// Tiles as in step 8, and kQBuffers of Q. With kSkips, warpgroups skip what they do not see, and
// take no turns.
template <int HeadDim, int BlockK, int Groups, int Stages, int QBuffers, bool Skips = false>
struct Config : hopper::Config<HeadDim, BlockK, Groups, Stages, 1> {
  using Base = hopper::Config<HeadDim, BlockK, Groups, Stages, 1>;
  static constexpr int kQBuffers = QBuffers;
  static constexpr bool kSkips = Skips;
  static constexpr std::size_t kSharedBytes =
      Base::kSharedBytes + 2 * (QBuffers - 1) * Base::kQSize;
};

// The tiles of a pass. `next` counts those that were drawn after each block's first.
struct Tiles {
  unsigned count;
  int section;
  unsigned* next;
};

constexpr int kNone = -1;  // in place of the keys that a tile sees: there is no tile any more

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    persistent_kernel(const __grid_constant__ TensorMap q_map,
                      const __grid_constant__ TensorMap k_map,
                      const __grid_constant__ TensorMap v_map,
                      const __grid_constant__ TensorMap out_map, Arguments<T> a, Tiles tiles) {
  __shared__ Barrier Q_full[C::kQBuffers], Q_empty[C::kQBuffers], K_full[C::kStages],
      V_full[C::kStages], K_empty[C::kStages], V_empty[C::kStages];
  __shared__ Work work_of[C::kQBuffers];
  FLASH_DYNAMIC_SHARED(T, shared);
  T* const first_tile = align_to_1024(shared);
  const auto Q_smem = [&](unsigned i) { return first_tile + i % C::kQBuffers * C::kQSize; };
  const auto K_smem = [&](unsigned stage) {
    return first_tile + C::kQBuffers * C::kQSize + stage * 2 * C::kKSize;
  };
  const auto V_smem = [&](unsigned stage) { return K_smem(stage) + C::kKSize; };

  if (threadIdx.x == 0) {
    for (int buffer = 0; buffer < C::kQBuffers; ++buffer) {
      init(Q_full[buffer], 1);
      init(Q_empty[buffer], 4 * C::kGroups);
    }
    init_stages<C>(K_full, V_full, K_empty, V_empty);
    fence_barrier_init();
  }
  __syncthreads();
  const auto steps_of = [](int keys) { return (keys + C::kBlockK - 1) / C::kBlockK; };
  unsigned s = 0;  // counts the steps of all tiles

  if (threadIdx.x < 128) {
    give_registers<C::kRegistersToCopy>();
    if (threadIdx.x != 0) return;
    const auto work_at = [&](unsigned tile) {
      if (tile < tiles.count)
        return Work(a.shape, a.causal, C::kBlockQ, static_cast<int>(tile), tiles.section);
      Work none;
      none.some_see = kNone;
      return none;
    };
    const auto bring_Q = [&](unsigned i, const Work& work) {
      const unsigned buffer = i % C::kQBuffers;
      wait(Q_empty[buffer], i / C::kQBuffers % 2 ^ 1);
      work_of[buffer] = work;
      if (work.some_see == kNone)
        arrive(Q_full[buffer]);
      else
        load_tile<C, C::kBlockQ>(Q_smem(i), q_map, Q_full[buffer], work.i0, work);
    };
    Work work = work_at(blockIdx.x);
    bring_Q(0, work);
    for (unsigned i = 1; work.some_see != kNone; ++i) {
      unsigned tile = 0;
      for (int n = 0, steps = steps_of(work.some_see); n < steps; ++n, ++s) {
        const unsigned stage = s % C::kStages, parity = s / C::kStages % 2;
        wait(K_empty[stage], parity ^ 1);
        load_tile<C, C::kBlockK>(K_smem(stage), k_map, K_full[stage], n * C::kBlockK, work);
        if (n == steps - 1) tile = gridDim.x + atomicAdd(tiles.next, 1u);
        wait(V_empty[stage], parity ^ 1);
        load_tile<C, C::kBlockK>(V_smem(stage), v_map, V_full[stage], n * C::kBlockK, work);
      }
      work = work_at(tile);
      if (C::kQBuffers == 1 && work.some_see != kNone)
        prefetch_tile<C, C::kBlockQ>(q_map, work.i0, work);
      bring_Q(i, work);
    }
    return;
  }

  take_registers<C::kRegistersToCompute>();
  const unsigned thread = threadIdx.x - 128;
  const bool tells = thread % 128 == 0;
  const int group = __shfl_sync(kAllLanes, static_cast<int>(thread / 128), 0);
  const Lane<C> me(thread);
  const Turns<C> turns(static_cast<int>(thread));
  const auto begin_turn = [&] {
    if (!C::kSkips) turns.begin();
  };
  const auto end_turn = [&] {
    if (!C::kSkips) turns.end();
  };
  const auto full = [&](Barrier(&barriers)[C::kStages], unsigned step) {
    wait(barriers[step % C::kStages], step / C::kStages % 2);
  };
  const auto release = [&](Barrier(&barriers)[C::kStages], unsigned step) {
    if (tells) arrive(barriers[step % C::kStages]);
  };
  Rows<C> rows;
  Scores<C> S;
  Weights<C> P;
  const auto PV = [&](unsigned step) {
    full(V_full, step);
    start_PV<C, T>(rows, P, columns_of<C>(V_smem(step % C::kStages)));
  };

  // A tile ends in three moves: O goes to the memory of its Q, TMA takes it from there, and the
  // memory is free for the next Q.
  RowEnd end[2];
  const auto put = [&](unsigned i) {
    end[0] = end_of<C>(0, 0, rows, a.scale);
    end[1] = end_of<C>(0, 1, rows, a.scale);
    put_O<C>(Q_smem(i), rows, end, me);
  };
  const auto send = [&](unsigned i) {
    const Work work = work_of[i % C::kQBuffers];
    fence_proxy_async();
    __syncwarp();
    if (me.lane == 0) {
      FLASH_UNROLL
      for (int slab = 0; slab < C::kHeadDim / 64; ++slab)
        tma_store(out_map, Q_smem(i) + (slab * C::kBlockQ + me.first_row) * 64, 64 * slab,
                  work.i0 + me.first_row, work.h, work.b);
      tma_commit();
    }
    for (int row = 0; row < 2; ++row)
      store_lse<C>(end[row].lse, work.i0 + me.row(0, row), a.lse, work, me);
  };
  const auto give_back = [&](unsigned i) {
    if (me.lane == 0) {
      tma_wait_read<0>();
      arrive(Q_empty[i % C::kQBuffers]);
    }
  };
  const auto end_tile = [&](unsigned i, unsigned last) {
    PV(last);
    wgmma_wait<0>();
    release(V_empty, last);
    put(i);
    send(i);
    give_back(i);
  };

  unsigned last = 0;  // the tile's last step, whose P V is still to be done
  for (unsigned i = 0;; ++i) {
    constexpr bool kOverlaps = C::kQBuffers > 1;
    const unsigned buffer = i % C::kQBuffers;
    if (!kOverlaps && i > 0) end_tile(i - 1, C::kSkips ? last : s - 1);
    wait(Q_full[buffer], i / C::kQBuffers % 2);
    // From one lane: ptxas then knows that what follows is the same in all of them.
    const int some_see = __shfl_sync(kAllLanes, work_of[buffer].some_see, 0);
    if (some_see == kNone) {
      if (kOverlaps) end_tile(i - 1, C::kSkips ? last : s - 1);
      break;
    }
    const int i0 = __shfl_sync(kAllLanes, work_of[buffer].i0, 0), first_row = i0 + 64 * group;
    const int keys = static_cast<int>(a.shape.keys),
              all_see = static_cast<int>(a.shape.visible_keys(first_row, a.causal));
    const MatrixDescriptor Q = rows_of(Q_smem(i) + group * 64 * 64);
    const auto QK = [&] {
      full(K_full, s);
      begin_turn();
      start_QK<C, T>(S, Q, rows_of(K_smem(s % C::kStages)));
    };
    const auto mask = [&](int n) {
      if ((n + 1) * C::kBlockK > all_see) mask_scores<C>(S, keys, a.causal, i0, n * C::kBlockK, me);
    };

    QK();
    if (kOverlaps && i > 0) PV(C::kSkips ? last : s - 1);
    end_turn();
    wgmma_wait<0>();
    release(K_empty, s);
    if (kOverlaps && i > 0) {
      release(V_empty, C::kSkips ? last : s - 1);
      put(i - 1);
    }
    rows.m[0][0] = rows.m[0][1] = -INFINITY;
    rows.l[0][0] = rows.l[0][1] = rows.rounding[0][0] = rows.rounding[0][1] = 0;
    mask(0);
    softmax_with_new_maximum<C, T>(P, S, rows, a.scale);
    FLASH_UNROLL
    for (float& x : flat(rows.O[0])) x = 0;  // now, so that nobody rescales the old O
    if (kOverlaps && i > 0) {
      send(i - 1);
      give_back(i - 1);
    }

    const int steps = steps_of(some_see);
    int mine = steps;
    if constexpr (C::kSkips)
      if (first_row < a.shape.queries) {
        const Index below = first_row + 64 < a.shape.queries ? first_row + 64 : a.shape.queries;
        mine = steps_of(static_cast<int>(a.shape.visible_keys(below - 1, a.causal)));
      }
    int n = 1;
    for (++s; n < mine; ++n, ++s) {
      QK();
      PV(s - 1);
      end_turn();
      wgmma_wait<0>();
      release(K_empty, s);
      release(V_empty, s - 1);
      mask(n);
      if (!softmax_with_old_maximum<C, T>(P, S, rows, a.scale))
        softmax_with_new_maximum<C, T>(P, S, rows, a.scale);
    }
    last = s - 1;
    for (; n < steps; ++n, ++s) {
      full(K_full, s);
      full(V_full, s);
      release(K_empty, s);
      release(V_empty, s);
    }
  }
  turns.close();
}

// ./lab tune: Config<D, 64|80|96|128|160, 2|3|4, 2|3|4, 1|2, false|true>
using Long = Table<Config<64, 128, 3, 2, 2>, Config<128, 128, 2, 2, 2>, Config<256, 80, 2, 2, 1>>;
using Short = Table<Config<64, 64, 4, 4, 2>>;
using ShortCausal = Table<Config<64, 64, 4, 4, 2, true>>;

std::string why_not_here(const AttentionProblem& problem) {
  return problem.shape.keys == 0 ? "keys is 0; it must be at least 1" : why_not(problem);
}

template <class T>
void forward(const AttentionForward<T>& pass, PassMemory& memory) {
  const AttentionShape shape = check_attention(pass);
  const auto fits = [&]<class C>(C config) {
    return shape.head_dim <= C::kHeadDim && has_room(config);
  };
  const auto start = [&]<class C>(C config) {
    const Index heads = shape.batch * shape.heads, count = tiles_of<C>(shape);
    // Sections of equal size: a last one of 4 heads, behind four of 63, cost up to 9 %.
    constexpr Index kInCache = 16 << 20;  // K and V of a section; the L2 cache of an H200 has 50 MB
    const Index fit = std::clamp<Index>(kInCache / (4 * shape.keys * shape.head_dim), 1, heads),
                sections = (heads + fit - 1) / fit, section = (heads + sections - 1) / sections;
    const auto next = static_cast<unsigned*>(memory.workspace);
    device::fill_bytes(next, 0, sizeof *next, pass.stream);
    launch("persistent", persistent_kernel<T, C>,
           launch_of(config, std::min<Index>(count, device::multiprocessors()), pass.stream),
           tensor_map(pass.q, C::kBlockQ), tensor_map(pass.k, C::kBlockK),
           tensor_map(pass.v, C::kBlockK), tensor_map(pass.out, 16), arguments_of(pass),
           Tiles{grid_size(count).x, static_cast<int>(section), next});
  };
  const bool is_short = shape.keys <= 2048;
  const bool done = is_short && (pass.options.causal ? use_first(ShortCausal(), fits, start)
                                                     : use_first(Short(), fits, start));
  if (!done && !use_first(Long(), fits, start)) throw_no_room(shape.head_dim);
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.forward.add({.name = name,
                        .device = DeviceKind::kGpu,
                        .run = {.float16 = forward<Half>, .bfloat16 = forward<BFloat16>},
                        .unsupported = why_not_here,
                        .workspace_bytes = [](const AttentionProblem&) { return sizeof(unsigned); },
                        .finite_inputs = true});
}

}  // namespace flash::persistent
