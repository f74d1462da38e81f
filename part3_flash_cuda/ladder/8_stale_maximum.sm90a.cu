// Rung 8: no maximum in the hot loop.
//
// New: exp2(s - m) / sum(exp2(s - m)) is the same for every m. Online softmax takes the largest
// score only so that nothing overflows. So this kernel takes the maximum of the first keys, and
// goes on with it: there is no search for a maximum, no shuffle, and O is not rescaled. Weights may
// become much larger than 1. Only where a thread's weights of a row add up to more than the type
// can take (2^14 for half, 2^60 for bfloat16) is the step done again, with its maximum, as in step
// 7. With q and k from N(0, 1) that never happens; with q 8 times as large in one step of 10 of
// half, and never in bfloat16.
//
// The price would be accuracy: the largest weight of a row is no longer exactly 1, and is rounded
// to 16 bits like the others. With q 8 times as large the error was 1.12 to 1.15 times cuDNN's. So
// where weights are large, O is divided by the sum of the rounded weights, and the largest cancels:
// 1.03 to 1.06 times. Such a step takes 128 instructions more, not a second softmax.
// Measured on an H200 (bfloat16, 16 heads of 128, 4096 keys): 681 TFLOP/s, 1.09 times cuDNN's 626;
// with 16384 keys 718, 1.14 times. Where a block has few steps (1024 keys and a mask) it is 0.83 to
// 0.86 times as fast as cuDNN. Nsight Compute: the tensor cores are busy 77 %.
//
// softmax_with_old_maximum() is in warpgroups.hpp, since the next step has it too.
#include "part3_flash_cuda/ladder/warpgroups.hpp"

namespace flash::stale_maximum {
namespace {

using namespace hopper;

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    stale_maximum_kernel(const __grid_constant__ TensorMap q_map,
                         const __grid_constant__ TensorMap k_map,
                         const __grid_constant__ TensorMap v_map, Arguments<T> a) {
  const Work work(a.shape, a.causal, C::kBlockQ);
  __shared__ Barrier Q_full;
  __shared__ Pipeline<C::kStages> K_pipeline, V_pipeline;
  using Tiles = typename C::template Tiles<T>;
  FLASH_DYNAMIC_SHARED(Tiles, shared);
  Tiles* const smem = align_to_1024(shared);

  if (threadIdx.x == 0) {
    init(Q_full, 1);
    K_pipeline.init(C::kGroups);
    V_pipeline.init(C::kGroups);
    fence_barrier_init();
  }
  __syncthreads();
  const int steps = count_steps<C>(work.some_see);

  if (threadIdx.x < 128) {
    give_registers<C::kRegistersToCopy>();
    if (threadIdx.x != 0) return;
    load_tile(smem->Q, q_map, Q_full, work.i0, work);
    for (int n = 0; n < steps; ++n) {
      K_pipeline.wait_empty(n);
      load_tile(smem->K[K_pipeline.stage(n)], k_map, K_pipeline.full(n), n * C::kBlockK, work);
      V_pipeline.wait_empty(n);
      load_tile(smem->V[V_pipeline.stage(n)], v_map, V_pipeline.full(n), n * C::kBlockK, work);
    }
    return;
  }

  take_registers<C::kRegistersToCompute>();
  const int thread = static_cast<int>(threadIdx.x) - 128;
  const bool is_leader = thread % 128 == 0;
  const Lane<C> lane(thread);
  const auto Q = smem->Q.by_columns(thread / 128 * 64);
  const Turns<C> turns(thread);
  Rows<C> rows;
  Scores<C> S;
  Weights<C> P;
  const auto QK = [&](int n) { start_QK<C>(S, Q, smem->K[K_pipeline.stage(n)]); };
  const auto PV = [&](int n) { start_PV<C>(rows, P, smem->V[V_pipeline.stage(n)]); };
  const auto softmax = [&](int n) {
    const int j0 = n * C::kBlockK;
    const bool masked = j0 + C::kBlockK > work.all_see;
    if (masked) mask_scores<C>(S, work.keys, a.causal, work.i0, j0, lane);
    if (n > 0 && !masked && softmax_with_old_maximum<C, T>(P, S, rows, a.scale)) return;
    softmax_with_new_maximum<C, T>(P, S, rows, a.scale);
  };

  wait(Q_full, 0);
  if (steps > 0) {
    K_pipeline.wait_full(0);
    turns.begin();
    QK(0);
    turns.end();
    wgmma_wait<0>();
    if (is_leader) K_pipeline.release(0);
    softmax(0);
    for (int n = 1; n < steps; ++n) {
      K_pipeline.wait_full(n);
      turns.begin();
      QK(n);
      V_pipeline.wait_full(n - 1);
      PV(n - 1);
      turns.end();
      wgmma_wait<0>();
      if (is_leader) K_pipeline.release(n);
      if (is_leader) V_pipeline.release(n - 1);
      softmax(n);
    }
    turns.begin();
    V_pipeline.wait_full(steps - 1);
    PV(steps - 1);
    turns.end();
    wgmma_wait<0>();
  }
  turns.close();
  store<C>(rows, a.out, a.lse, work, a.scale, lane);
}

// ./lab tune: Config<D, 64|80|96|128|160|176, 2|3|4, 2|3|4, 1>
using Configs =
    Table<Config<64, 128, 3, 2, 1>, Config<128, 128, 2, 2, 1>, Config<256, 80, 2, 2, 1>>;

}  // namespace

FLASH_ENTER(registry, name) {
  enter(registry, name, why_not, []<class T>(const AttentionForward<T>& pass) {
    run("stale_maximum", pass, Configs(), []<class C>(C) { return stale_maximum_kernel<T, C>; });
  });
}

}  // namespace flash::stale_maximum
