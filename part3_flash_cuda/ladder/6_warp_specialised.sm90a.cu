// Rung 6: one thread copies, two warpgroups compute.
//
// New: a third warpgroup starts the copies, and gives its registers to the other two: 24 for a
// thread that copies, 240 for one that computes. Instead of __syncthreads() each tile has two
// mbarriers. "Full" says that it has landed, "empty" that both warpgroups have read it. So a
// warpgroup waits for data only, never for the other warpgroup, and drifts away from it: while one
// computes exponentials, the other may multiply.
//
// The bottleneck: that the two drift apart is luck. Where both want the tensor cores at the same
// time, one waits, and later they compute exponentials at the same time.
// Measured on an H200 (bfloat16, 16 heads of 128, 4096 keys): 572 TFLOP/s. Nsight Compute: the
// tensor cores are busy 62 % of the time. It does not pay for heads of 64: 479 TFLOP/s beside 491
// of rung 5, whose blocks are small enough for two on a multiprocessor.
#include "part3_flash_cuda/ladder/warpgroups.hpp"

namespace flash::warp_specialised {
namespace {

using namespace hopper;

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    specialised_kernel(const __grid_constant__ TensorMap q_map,
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
  Rows<C> rows;
  wait(Q_full, 0);
  for (int n = 0; n < steps; ++n) {
    const int j0 = n * C::kBlockK;
    K_pipeline.wait_full(n);
    Scores<C> S;
    start_QK<C>(S, Q, smem->K[K_pipeline.stage(n)]);
    wgmma_wait<0>();
    if (is_leader) K_pipeline.release(n);
    if (j0 + C::kBlockK > work.all_see) mask_scores<C>(S, work.keys, a.causal, work.i0, j0, lane);
    softmax_step<C>(S, rows, a.scale);
    Weights<C> P;
    pack_weights<C, T>(P, S);
    V_pipeline.wait_full(n);
    start_PV<C>(rows, P, smem->V[V_pipeline.stage(n)]);
    wgmma_wait<0>();
    if (is_leader) V_pipeline.release(n);
  }
  store<C>(rows, a.out, a.lse, work, a.scale, lane);
}

// ./lab tune: Config<D, 64|80|96|128|160|176, 2|3|4, 2|3|4, 1>
using Configs =
    Table<Config<64, 128, 3, 2, 1>, Config<128, 128, 2, 2, 1>, Config<256, 80, 2, 2, 1>>;

}  // namespace

FLASH_ENTER(registry, name) {
  enter(registry, name, why_not, []<class T>(const AttentionForward<T>& pass) {
    run("warp_specialised", pass, Configs(), []<class C>(C) { return specialised_kernel<T, C>; });
  });
}

}  // namespace flash::warp_specialised
