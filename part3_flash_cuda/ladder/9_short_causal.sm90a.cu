// Rung 9: short sequences of heads of 64, with a causal mask.
//
// New, beside 9_persistent: a warpgroup skips the steps of which its 64 queries see nothing; it
// only releases their K and V. Since warpgroups then take different numbers of steps, they take no
// turns. Long sequences have few such steps, and there skipping costs more than it saves: ptxas no
// longer knows that all lanes of a warp take the same number of steps, and computes addresses in
// every lane anew.
//
// Measured on an H100 (bfloat16, medians, cuDNN in turns in the same run, microseconds between two
// events, heads of 64): 256 heads and 256 keys 21.2, 1.11 times cuDNN's speed; 768 heads and 256
// keys 46.8, 1.00 times; 128 heads and 512 keys 23.5, 1.22 times.
#include "part3_flash_cuda/ladder/persistent.hpp"

namespace flash::short_causal {
namespace {

using namespace persistent;
using persistent::Config, persistent::enter, persistent::run, persistent::why_not;

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    short_causal_kernel(const __grid_constant__ TensorMap q_map,
                        const __grid_constant__ TensorMap k_map,
                        const __grid_constant__ TensorMap v_map,
                        const __grid_constant__ TensorMap out_map, Arguments<T> a,
                        WorkQueue queue) {
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
        if (n == then) load_Q(i, queue.work<C>(number, a));
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
  Rows<C> rows;
  Scores<C> S;
  Weights<C> P;
  const auto PV = [&](unsigned step) {
    V_pipeline.wait_full(step);
    start_PV<C>(rows, P, smem->V[V_pipeline.stage(step)]);
  };

  // Work ends in two moves: O goes to shared memory, and TMA takes it from there.
  static_assert(C::kHasO);
  RowEnd end[2];
  const auto store_O = [&] {
    end[0] = end_row<C>(0, rows, a.scale);
    end[1] = end_row<C>(1, rows, a.scale);
    if (lane.id == 0) tma_wait_read<0>();  // of the O before
    __syncwarp();
    hopper::store_O<C>(smem->Q[C::kQBuffers], rows, end, lane);
  };
  const auto send_O = [&](unsigned i) {
    const Work work = work_in[i % C::kWorks];
    fence_proxy_async();
    __syncwarp();
    if (lane.id == 0) store_tile<true>(out_map, smem->Q[C::kQBuffers], work, lane.first_row);
    for (int row = 0; row < 2; ++row)
      store_lse<C>(end[row].lse, work.i0 + lane.row(row), a.lse, work, lane);
  };

  unsigned last = 0;  // the work's last step, whose P V is still to be done
  for (unsigned i = 0;; ++i) {
    const unsigned buffer = Q_pipeline.stage(i);
    Q_pipeline.wait_full(i);
    const int some_see = __shfl_sync(kAllLanes, work_in[i % C::kWorks].some_see, 0);
    if (some_see == kNone) {
      PV(last);
      wgmma_wait<0>();
      store_O();
      send_O(i - 1);
      break;
    }
    const int i0 = __shfl_sync(kAllLanes, work_in[i % C::kWorks].i0, 0),
              first_row = i0 + 64 * group;
    const int keys = static_cast<int>(a.shape.keys),
              all_see = static_cast<int>(a.shape.visible_keys(first_row, a.causal));
    const auto Q = smem->Q[buffer].by_columns(64 * group);
    const auto QK = [&] {
      K_pipeline.wait_full(s);
      start_QK<C>(S, Q, smem->K[K_pipeline.stage(s)]);
    };
    const auto mask = [&](int n) {
      if ((n + 1) * C::kBlockK > all_see)
        mask_scores<C>(S, keys, a.causal, i0, n * C::kBlockK, lane);
    };

    QK();
    if (i > 0) PV(last);
    wgmma_wait<0>();
    if (is_leader) K_pipeline.release(s);
    if (i > 0) {
      if (is_leader) V_pipeline.release(last);
      store_O();
    }
    rows.m[0] = rows.m[1] = -INFINITY;
    rows.l[0] = rows.l[1] = rows.rounding[0] = rows.rounding[1] = 0;
    mask(0);
    softmax_with_new_maximum<C, T>(P, S, rows, a.scale);
    FLASH_UNROLL
    for (float& x : flat(rows.O)) x = 0;  // now, so that nobody rescales the old O
    if (i > 0) send_O(i - 1);

    const int steps = count_steps<C>(some_see);
    int own_steps = steps;  // of this warpgroup's queries
    if (first_row < a.shape.queries) {
      const Index below = first_row + 64 < a.shape.queries ? first_row + 64 : a.shape.queries;
      own_steps = count_steps<C>(static_cast<int>(a.shape.visible_keys(below - 1, a.causal)));
    }
    int n = 1;
    for (++s; n < own_steps; ++n, ++s) {
      QK();
      PV(s - 1);
      wgmma_wait<0>();
      if (is_leader) K_pipeline.release(s);
      if (is_leader) V_pipeline.release(s - 1);
      mask(n);
      if (!softmax_with_old_maximum<C, T>(P, S, rows, a.scale))
        softmax_with_new_maximum<C, T>(P, S, rows, a.scale);
    }
    last = s - 1;
    for (; n < steps; ++n, ++s) {
      K_pipeline.wait_full(s);
      V_pipeline.wait_full(s);
      if (is_leader) K_pipeline.release(s);
      if (is_leader) V_pipeline.release(s);
    }
    if (lane.id == 0) Q_pipeline.release(i);
  }
  if (lane.id == 0) tma_wait_read<0>();
}

// ./lab tune: Config<D, 64|80|96|128|160, 2|3|4, 2|3|4, 2>
using Configs = Table<Config<64, 64, 4, 4, 2>>;

std::string why_not_here(const AttentionProblem& problem) {
  if (!problem.options.causal) return "there is no causal mask; there must be one";
  if (std::string why = why_above("head_dim", problem.shape.head_dim, 64); !why.empty()) return why;
  if (std::string why = why_above("keys", problem.shape.keys, 2048); !why.empty()) return why;
  return why_not(problem);
}

template <class T>
void forward(const AttentionForward<T>& pass, PassMemory& memory) {
  run("short_causal", pass, memory, Configs(), choice::Kernel::kShortCausal,
      []<class C>(C) { return short_causal_kernel<T, C>; });
}

}  // namespace

FLASH_ENTER(registry, name) {
  enter(
      registry, name, why_not_here, choice::Kernel::kShortCausal,
      []<class T>(const AttentionForward<T>& pass, PassMemory& memory) { forward(pass, memory); });
}

}  // namespace flash::short_causal
