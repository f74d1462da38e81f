// Rung 7: the warpgroups take turns at the tensor cores.
//
// New: a warpgroup starts Q K^T of its step n and P V of step n - 1 together, and only in its turn;
// then the turn goes to the other one (ping-pong), and it computes the exponentials of step n. So
// one warpgroup's exponentials always run during the other's products. A turn is a named barrier:
// the warpgroup waits at its own, and arrives at the other's.
//
// The bottleneck: for 128 x 128 scores and heads of 128 the products take 2048 clocks, the
// exponentials 1024 and the other arithmetic about 640. The two kinds would hide each other
// completely if the arithmetic of one warpgroup, which has half of the scores, took less than the
// products of the other. It takes longer than the count says: beside wgmma, operations on registers
// are 1.2 to 1.8 times as slow.
// Measured on an H200 (bfloat16, 16 heads of 128, 4096 keys): 623 TFLOP/s, as much as cuDNN (626).
// Nsight Compute: the tensor cores are busy 69 % of the time.
#include "part3_flash_cuda/ladder/warpgroups.hpp"

namespace flash::ping_pong {
namespace {

using namespace hopper;

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    ping_pong_kernel(const __grid_constant__ TensorMap q_map,
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
    if (j0 + C::kBlockK > work.all_see) mask_scores<C>(S, work.keys, a.causal, work.i0, j0, lane);
    softmax_step<C>(S, rows, a.scale);
    pack_weights<C, T>(P, S);
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
    run("ping_pong", pass, Configs(), []<class C>(C) { return ping_pong_kernel<T, C>; });
  });
}

}  // namespace flash::ping_pong
