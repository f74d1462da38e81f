// Rung 9: short sequences, all keys of a head at once in shared memory.
//
// New, beside 9_persistent: no ring of stages, and no warp that only copies. A thread block has 64
// or 128 queries of a head, and memory for all keys, in at most eight chunks. One thread starts all
// copies before anybody waits, and the first product begins when Q and the first chunk are there.
// Where all keys are one chunk, its maximum is the true one, and O is never rescaled.
//
// A multiprocessor holds up to six of these small blocks: while one waits for memory, the others
// compute. The blocks stay: with G blocks, block b takes the pieces of work b, b + G, b + 2 G, ...
// When all warpgroups have multiplied Q by the last chunk of K, the next Q and K are loaded to the
// same place. After the last P V the next V is loaded. The softmax, P V and the copy of O hide
// these loads without a second buffer. There is no counter, no workspace and no second launch.
//
// L2 is told to give up first what nobody reads again: Q, O, and with heads of 64 K and V.
//
// The bottleneck is memory with many heads. With few heads it is latency: a launch, a load, two
// products and a store, one after the other. With many heads a ring is faster above 128 keys, since
// K and V of all keys then leave little room for a second block (choice.hpp). Measured on an H200
// and on an H100 (bfloat16, no mask, medians, cuDNN in turns in the same run, microseconds between
// two events, and how many times cuDNN's speed that is):
//
//   heads       keys   H200         H100
//   8 of 64     128     8.0, 1.29    7.6, 1.33
//   8 of 64     333    10.4, 1.26   10.0, 1.29
//   768 of 64   128    21.6, 1.10   25.9, 1.12
//   8 of 128    256    10.5, 1.23   10.6, 1.23
//   768 of 128  128    35.8, 1.03   44.0, 1.03
#include <algorithm>

#include "part3_flash_cuda/ladder/choice.hpp"
#include "part3_flash_cuda/ladder/warpgroups.hpp"

namespace flash::whole_head {
namespace {

using namespace hopper;

// kChunks chunks of kBlockK keys, and kBlocks thread blocks a multiprocessor. There is no
// warpgroup that only copies.
template <int HeadDim, int BlockK, int Groups, int Chunks, int Blocks>
struct Config : hopper::Config<HeadDim, BlockK, Groups, Chunks, 0> {
  using Base = hopper::Config<HeadDim, BlockK, Groups, Chunks, 0>;
  static constexpr int kChunks = Chunks, kBlocks = Blocks;
  static constexpr bool kOnce = HeadDim == 64;  // K and V: see did_not_pay.md

  template <class T>
  struct Tiles {
    typename Base::template QTile<T> Q, O;
    typename Base::template KTile<T> K[Chunks], V[Chunks];
  };
  static constexpr std::size_t kSharedBytes = sizeof(Tiles<Half>) + 1024;
};

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    whole_head_kernel(const __grid_constant__ TensorMap q_map,
                      const __grid_constant__ TensorMap k_map,
                      const __grid_constant__ TensorMap v_map,
                      const __grid_constant__ TensorMap out_map, Arguments<T> a, unsigned count) {
  __shared__ Barrier K_full[C::kChunks], V_full[C::kChunks];  // K_full[0] is Q's, too
  __shared__ Barrier K_read, V_read;                          // by all warps; Q as well as K
  __shared__ Work work_in[3];  // a turn's, the next one's, and one that others may still read
  using Tiles = typename C::template Tiles<T>;
  FLASH_DYNAMIC_SHARED(Tiles, shared);
  Tiles* const smem = align_to_1024(shared);

  // By thread 0: the tiles of a turn.
  const auto plan = [&](unsigned turn) {
    work_in[turn % 3] =
        work_in_rounds(a.shape, a.causal, C::kBlockQ, blockIdx.x + turn * gridDim.x);
  };
  const auto load_Q_and_K = [&](unsigned turn) {
    const Work work = work_in[turn % 3];
    for (int c = 0, steps = count_steps<C>(work.some_see); c < steps; ++c) {
      arrive_expecting(K_full[c], (c == 0 ? sizeof smem->Q : 0) + sizeof smem->K[c]);
      if (c == 0) copy_tile<true>(smem->Q, q_map, K_full[c], work.i0, work);
      copy_tile<C::kOnce>(smem->K[c], k_map, K_full[c], c * C::kBlockK, work);
    }
  };
  const auto load_V = [&](unsigned turn) {
    const Work work = work_in[turn % 3];
    for (int c = 0, steps = count_steps<C>(work.some_see); c < steps; ++c)
      load_tile<C::kOnce>(smem->V[c], v_map, V_full[c], c * C::kBlockK, work);
    plan(turn + 1);  // here, where most registers are free
  };

  if (threadIdx.x == 0) {
    for (int c = 0; c < C::kChunks; ++c) {
      init(K_full[c], 1);
      init(V_full[c], 1);
    }
    init(K_read, 4 * C::kGroups);
    init(V_read, 4 * C::kGroups);
    fence_barrier_init();
    plan(0);
    load_Q_and_K(0);
    load_V(0);
  }
  __syncthreads();

  const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 128), 0);
  const Lane<C> lane;
  Rows<C> rows;
  Scores<C> S;
  Weights<C> P;
  unsigned parities = 0;  // bit c: of the phase of chunk c's barriers
  for (unsigned turn = 0; blockIdx.x + turn * gridDim.x < count; ++turn) {
    wait(K_full[0], parities & 1);
    const Work& work = work_in[turn % 3];
    const int i0 = __shfl_sync(kAllLanes, work.i0, 0), first_row = i0 + 64 * group,
              queries = static_cast<int>(a.shape.queries), keys = static_cast<int>(a.shape.keys),
              below = first_row + 64 < queries ? first_row + 64 : queries,
              all_see = static_cast<int>(a.shape.visible_keys(first_row, a.causal)),
              steps = count_steps<C>(static_cast<int>(a.shape.visible_keys(below - 1, a.causal)));
    const auto Q = smem->Q.by_columns(64 * group);
    const auto QK = [&](int c) {
      if (c > 0) wait(K_full[c], parities >> c & 1);
      start_QK<C>(S, Q, smem->K[c]);
    };
    const auto PV = [&](int c) {
      wait(V_full[c], parities >> c & 1);
      start_PV<C>(rows, P, smem->V[c]);
    };
    const auto mask = [&](int c) {
      if ((c + 1) * C::kBlockK > all_see)
        mask_scores<C>(S, keys, a.causal, i0, c * C::kBlockK, lane);
    };
    // The next tiles are loaded as soon as no warp needs these. The arrivals also tell thread 0
    // that nobody needs the work of the turn before.
    const auto load_next = [&](Barrier& read, const auto& load) {
      __syncwarp();
      if (lane.id == 0) arrive(read);  // no race without it: thread 0 then waits for ever
      if (threadIdx.x == 0 && blockIdx.x + (turn + 1) * gridDim.x < count) {
        wait(read, turn & 1);
        load(turn + 1);
      }
    };

    QK(0);
    wgmma_wait<0>();
    if (C::kChunks == 1 || steps == 1) load_next(K_read, load_Q_and_K);
    rows.m[0] = rows.m[1] = -INFINITY;
    rows.l[0] = rows.l[1] = rows.rounding[0] = rows.rounding[1] = 0;
    mask(0);
    softmax_with_new_maximum<C, T>(P, S, rows, a.scale);
    FLASH_UNROLL
    for (float& x : flat(rows.O)) x = 0;
    int c = 1;
    if constexpr (C::kChunks > 1) {
      for (; c < steps; ++c) {
        QK(c);
        PV(c - 1);
        wgmma_wait<0>();
        if (c == steps - 1) load_next(K_read, load_Q_and_K);
        mask(c);
        if (!softmax_with_old_maximum<C, T>(P, S, rows, a.scale))
          softmax_with_new_maximum<C, T>(P, S, rows, a.scale);
      }
    }
    PV(c - 1);
    wgmma_wait<0>();
    load_next(V_read, load_V);
    parities ^= (1u << count_steps<C>(work.some_see)) - 1;

    const RowEnd end[2] = {end_row<C>(0, rows, a.scale), end_row<C>(1, rows, a.scale)};
    if (lane.id == 0) tma_wait_read<0>();  // of the O before
    __syncwarp();
    store_O<C>(smem->O, rows, end, lane);
    fence_proxy_async();
    __syncwarp();
    if (lane.id == 0) store_tile<true>(out_map, smem->O, work, lane.first_row);
    for (int row = 0; row < 2; ++row)
      store_lse<C>(end[row].lse, work.i0 + lane.row(row), a.lse, work, lane);
  }
  if (lane.id == 0) tma_wait_read<0>();
}

template <class T, class C>
void run_config(const AttentionForward<T>& pass, C config) {
  const Index count = count_work<C>(pass.shape());
  const Index blocks = std::min<Index>(count, C::kBlocks * device::multiprocessors());
  LaunchConfig launched = launch_config(config, blocks, pass.stream);
  launch("whole_head", whole_head_kernel<T, C>, launched, tensor_map(pass.q, C::kBlockQ),
         tensor_map(pass.k, C::kBlockK), tensor_map(pass.v, C::kBlockK), tensor_map(pass.out, 16),
         make_arguments(pass), grid_size(count).x);
}

using Configs = Table<Config<64, 64, 1, 1, 6>, Config<64, 128, 2, 1, 2>, Config<64, 128, 1, 1, 4>,
                      Config<64, 64, 2, 4, 2>, Config<64, 112, 1, 3, 1>, Config<64, 64, 2, 8, 1>,
                      Config<64, 128, 1, 4, 1>, Config<128, 64, 1, 1, 3>, Config<128, 128, 1, 1, 2>,
                      Config<128, 112, 1, 3, 1>, Config<128, 128, 1, 3, 1>>;

std::string why_not_here(const AttentionProblem& problem) {
  const Index most = problem.shape.head_dim <= 64 ? 512 : 384;
  if (problem.shape.keys == 0) return "keys is 0; it must be at least 1";
  if (std::string why = why_above("head_dim", problem.shape.head_dim, 128); !why.empty())
    return why;
  if (std::string why = why_above("keys", problem.shape.keys, most); !why.empty()) return why;
  return why_not(problem);
}

template <class T>
void forward(const AttentionForward<T>& pass) {
  const AttentionShape shape = check_attention(pass);
  const choice::Choice chosen = choice::choose(shape, pass.options.causal);
  const auto fits = [&]<class C>(C config) {
    return shape.head_dim <= C::kHeadDim && shape.keys <= C::kBlockK * C::kChunks &&
           has_room(config);
  };
  const auto start = [&](auto config) { run_config(pass, config); };
  if (!choice::use_chosen(Configs(), chosen, choice::Kernel::kWholeHead, fits, start))
    throw_no_room(shape.head_dim);
}

}  // namespace

FLASH_ENTER(registry, name) {
  const auto run = []<class T>(const AttentionForward<T>& pass) { forward(pass); };
  registry.forward.add({.name = name,
                        .device = DeviceKind::kGpu,
                        .run = {.float16 = run, .bfloat16 = run},
                        .unsupported = why_not_here,
                        .best_for = choice::is_best(choice::Kernel::kWholeHead),
                        .finite_inputs = true});
}

}  // namespace flash::whole_head
