// Rung 9: a thread block stays, and draws its work from a queue.
//
// New: there are as many blocks as multiprocessors, and each draws its next queries from a counter
// in device memory. So the next Q, K and V are loaded while these queries are still computed, and
// their first product, S = Q K^T, is started together with the last P V of these. That needs two
// buffers for Q; heads of 256 have room for one, and do without.
//
// O leaves by TMA: each warp writes its rows to shared memory, and starts their copy. Where the
// tiles leave room for O, Q's memory is free for the next Q after the last step; else O goes to the
// memory of its Q. Only O / l stands between the last product of some queries and the first softmax
// of the next; the copy and lse come after that softmax.
//
// With a causal mask some queries see more keys than others, and the counter gives the next ones to
// the block that is free. When each block had a fixed share, it was 16 % slower. The longest work
// comes first, among the heads of a section, whose K and V stay in the L2 cache. With at most 512
// keys, or 1024 and no mask, the counter costs more than it gains. Then block b of G takes numbers
// b, b + G, b + 2 G, and since it knows them, it loads the next Q some steps earlier.
//
// Short sequences have tiles of their own. Heads of 64 with a causal mask have their own kernel,
// 9_short_causal, and the shortest sequences 9_whole_head: choice.hpp has the table. Heads of 160
// and 192 columns take 80 and 64 keys a step, so that two buffers of Q still have room.
// did_not_pay.md lists what was tried here and left out.
//
// The bottleneck: a step of 128 keys and heads of 128 takes 2300 clocks, of which the tensor cores
// need 2048. Between two draws they wait about 2000 clocks more, for O / l and the first softmax;
// 1024 keys are 8 steps, or with a mask 4.5 on average.
// Measured on an H200 (bfloat16, 16 heads of 128, 4096 keys): 740 TFLOP/s, 1.10 times cuDNN's 675
// in the same run; 16384 keys: 765, 1.11 times; 1024 keys and a mask: 460, 1.06 times. Heads of 64:
// 1.21 to 1.38 times, heads of 256: 1.07 to 1.28 times. With q 8 times as large: 1.00 to 1.24
// times. On other days and cards cuDNN was up to 8 % slower beside it. 64 heads and 4096 keys, in
// another run: heads of 160 1.30 times, with a mask 1.31; heads of 192 1.10 and 1.11 times. 128
// heads of 128 and 512 keys: 1.03 times, with a mask 1.17; 64 heads of 128 and 333 keys: 1.27 and
// 1.17.
#include "part3_flash_cuda/ladder/persistent.hpp"

namespace flash::persistent {
namespace {

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    persistent_kernel(const __grid_constant__ TensorMap q_map,
                      const __grid_constant__ TensorMap k_map,
                      const __grid_constant__ TensorMap v_map,
                      const __grid_constant__ TensorMap out_map, Arguments<T> a, WorkQueue queue) {
  __shared__ Pipeline<C::kQBuffers> Q_pipeline;
  __shared__ Pipeline<C::kStages> K_pipeline, V_pipeline;
  __shared__ Work work_in[C::kWorks];
  using Tiles = typename C::template Tiles<T>;
  FLASH_DYNAMIC_SHARED(Tiles, shared);
  Tiles* const smem = align_to_1024(shared);

  if (threadIdx.x == 0) {
    Q_pipeline.init(4 * C::kGroups);
    K_pipeline.init(C::kGroups);
    V_pipeline.init(C::kGroups);
    fence_barrier_init();
  }
  __syncthreads();
  unsigned s = 0;  // counts the steps of all the block's work

  if (threadIdx.x < 128) {
    give_registers<C::kRegistersToCopy>();
    if (threadIdx.x != 0) return;
    const auto load_Q = [&](unsigned i, const Work& work) {
      const unsigned buffer = Q_pipeline.stage(i);
      Q_pipeline.wait_empty(i);
      work_in[i % C::kWorks] = work;
      if (work.some_see == kNone)
        arrive(Q_pipeline.full(i));
      else
        load_tile<true>(smem->Q[buffer], q_map, Q_pipeline.full(i), work.i0, work);
    };
    unsigned number = blockIdx.x;
    Work work = queue.work<C>(number, a);
    load_Q(0, work);
    for (unsigned i = 1; work.some_see != kNone; ++i) {
      const int steps = count_steps<C>(work.some_see), then = queue.next_Q<C>(steps);
      for (int n = 0; n < steps; ++n, ++s) {
        K_pipeline.wait_empty(s);
        load_tile(smem->K[K_pipeline.stage(s)], k_map, K_pipeline.full(s), n * C::kBlockK, work);
        if (n == then) number = queue.draw(number);
        V_pipeline.wait_empty(s);
        load_tile(smem->V[V_pipeline.stage(s)], v_map, V_pipeline.full(s), n * C::kBlockK, work);
        if (n == then) {
          const Work next = queue.work<C>(number, a);
          if (C::kQBuffers == 1 && next.some_see != kNone)
            prefetch_tile<typename C::template QTile<T>>(q_map, next.i0, next);
          load_Q(i, next);
        }
      }
      work = work_in[i % C::kWorks];
    }
    return;
  }

  take_registers<C::kRegistersToCompute>();
  const unsigned thread = threadIdx.x - 128;
  const bool is_leader = thread % 128 == 0;
  const int group = __shfl_sync(kAllLanes, static_cast<int>(thread / 128), 0);
  const Lane<C> lane(thread);
  const Turns<C> turns(static_cast<int>(thread));
  Rows<C> rows;
  Scores<C> S;
  Weights<C> P;
  const auto PV = [&](unsigned step) {
    V_pipeline.wait_full(step);
    start_PV<C>(rows, P, smem->V[V_pipeline.stage(step)]);
  };

  // Work ends in three moves: O goes to shared memory, TMA takes it from there, and Q's memory is
  // free for the next Q; where O has memory of its own, that is so already after the last step.
  RowEnd end[2];
  const auto O_tile = [&](unsigned i) -> auto& {
    return smem->Q[C::kHasO ? C::kQBuffers : Q_pipeline.stage(i)];
  };
  const auto store_O = [&](unsigned i) {
    end[0] = end_row<C>(0, rows, a.scale);
    end[1] = end_row<C>(1, rows, a.scale);
    if constexpr (C::kHasO) {
      if (lane.id == 0) tma_wait_read<0>();  // of the O before
      __syncwarp();
    }
    hopper::store_O<C>(O_tile(i), rows, end, lane);
  };
  const auto send_O = [&](unsigned i) {
    const Work work = work_in[i % C::kWorks];
    fence_proxy_async();
    __syncwarp();
    if (lane.id == 0) store_tile<true>(out_map, O_tile(i), work, lane.first_row);
    for (int row = 0; row < 2; ++row)
      store_lse<C>(end[row].lse, work.i0 + lane.row(row), a.lse, work, lane);
    if (!C::kHasO && lane.id == 0) {
      tma_wait_read<0>();
      Q_pipeline.release(i);
    }
  };
  const auto end_work = [&](unsigned i, unsigned last) {
    PV(last);
    wgmma_wait<0>();
    if (is_leader) V_pipeline.release(last);
    store_O(i);
    send_O(i);
  };

  for (unsigned i = 0;; ++i) {
    constexpr bool kOverlaps = C::kQBuffers > 1;
    const unsigned buffer = Q_pipeline.stage(i);
    if (!kOverlaps && i > 0) end_work(i - 1, s - 1);
    Q_pipeline.wait_full(i);
    // From one lane: ptxas then knows that what follows is the same in all of them.
    const int some_see = __shfl_sync(kAllLanes, work_in[i % C::kWorks].some_see, 0);
    if (some_see == kNone) {
      if (kOverlaps) end_work(i - 1, s - 1);
      break;
    }
    const int i0 = __shfl_sync(kAllLanes, work_in[i % C::kWorks].i0, 0),
              first_row = i0 + 64 * group;
    const int keys = static_cast<int>(a.shape.keys),
              all_see = static_cast<int>(a.shape.visible_keys(first_row, a.causal));
    const auto Q = smem->Q[buffer].by_columns(64 * group);
    const auto QK = [&] {
      K_pipeline.wait_full(s);
      turns.begin();
      start_QK<C>(S, Q, smem->K[K_pipeline.stage(s)]);
    };
    const auto mask = [&](int n) {
      if ((n + 1) * C::kBlockK > all_see)
        mask_scores<C>(S, keys, a.causal, i0, n * C::kBlockK, lane);
    };

    QK();
    if (kOverlaps && i > 0) PV(s - 1);
    turns.end();
    wgmma_wait<0>();
    if (is_leader) K_pipeline.release(s);
    if (kOverlaps && i > 0) {
      if (is_leader) V_pipeline.release(s - 1);
      store_O(i - 1);
    }
    rows.m[0] = rows.m[1] = -INFINITY;
    rows.l[0] = rows.l[1] = rows.rounding[0] = rows.rounding[1] = 0;
    mask(0);
    softmax_with_new_maximum<C, T>(P, S, rows, a.scale);
    FLASH_UNROLL
    for (float& x : flat(rows.O)) x = 0;  // now, so that nobody rescales the old O
    if (kOverlaps && i > 0) send_O(i - 1);

    const int steps = count_steps<C>(some_see);
    int n = 1;
    for (++s; n < steps; ++n, ++s) {
      QK();
      PV(s - 1);
      turns.end();
      wgmma_wait<0>();
      if (is_leader) K_pipeline.release(s);
      if (is_leader) V_pipeline.release(s - 1);
      mask(n);
      if (!softmax_with_old_maximum<C, T>(P, S, rows, a.scale))
        softmax_with_new_maximum<C, T>(P, S, rows, a.scale);
    }
    if (C::kHasO && lane.id == 0) Q_pipeline.release(i);
  }
  turns.close();
  if (C::kHasO && lane.id == 0) tma_wait_read<0>();
}

// ./lab tune: Config<D, 64|80|96|128|160, 2|3|4, 2|3|4, 1|2>
using Configs = Table<Config<64, 128, 3, 2, 2>, Config<64, 64, 4, 4, 2>, Config<128, 128, 2, 2, 2>,
                      Config<128, 64, 2, 4, 2>, Config<128, 64, 3, 4, 2>, Config<160, 80, 2, 2, 2>,
                      Config<192, 64, 2, 2, 2>, Config<256, 80, 2, 2, 1>>;

template <class T>
void forward(const AttentionForward<T>& pass, PassMemory& memory) {
  run("persistent", pass, memory, Configs(), choice::Kernel::kPersistent,
      []<class C>(C) { return persistent_kernel<T, C>; });
}

}  // namespace

FLASH_ENTER(registry, name) {
  enter(
      registry, name, why_not, choice::Kernel::kPersistent,
      []<class T>(const AttentionForward<T>& pass, PassMemory& memory) { forward(pass, memory); });
}

}  // namespace flash::persistent
