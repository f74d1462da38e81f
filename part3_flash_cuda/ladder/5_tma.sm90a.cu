// Rung 5: TMA copies the tiles.
//
// New: one thread starts the copy of a whole tile, and a unit of the multiprocessor computes the
// addresses, swizzles, and writes zeros where the tensor ends. In rung 4 each thread computed an
// address for every 16 bytes. An mbarrier in shared memory counts the bytes that have landed. There
// are two stages, so that a step's copies run during the step before. The block is larger now, 128
// queries: each K and V that comes serves twice as many queries, and nothing waits for it.
//
// The bottleneck: products, exponentials and the other arithmetic still come one after the other in
// a warpgroup. For 128 x 128 scores and heads of 128 that is 2048 + 1024 + 640 clocks, of which the
// tensor cores work 55 %. The second warpgroup could fill the gaps, but the __syncthreads() at the
// end of a step keeps both at the same point.
// Measured on an H200 (bfloat16, 16 heads of 128, 4096 keys): 525 TFLOP/s. Nsight Compute: the
// tensor cores are busy 57 % of the time; stalls "barrier".
#include "part3_flash_cuda/ladder/warpgroups.hpp"

namespace flash::tma_rung {
namespace {

using namespace hopper;

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads)
    tma_kernel(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
               const __grid_constant__ TensorMap v_map, Arguments<T> a) {
  const Work work(a.shape, a.causal, C::kBlockQ);
  __shared__ Barrier Q_full, K_full[C::kStages], V_full[C::kStages];
  using Tiles = typename C::template Tiles<T>;
  FLASH_DYNAMIC_SHARED(Tiles, shared);
  Tiles* const smem = align_to_1024(shared);
  const Lane<C> lane;
  const auto Q = smem->Q.by_columns(threadIdx.x / 128 * 64);
  Rows<C> rows;

  const bool copies = threadIdx.x == 0;
  if (copies) {
    init(Q_full, 1);
    for (int stage = 0; stage < C::kStages; ++stage) {
      init(K_full[stage], 1);
      init(V_full[stage], 1);
    }
    fence_barrier_init();
  }
  __syncthreads();

  const int steps = count_steps<C>(work.some_see);
  const auto fetch = [&](int n) {
    if (!copies || n >= steps) return;
    load_tile(smem->K[n % C::kStages], k_map, K_full[n % C::kStages], n * C::kBlockK, work);
    load_tile(smem->V[n % C::kStages], v_map, V_full[n % C::kStages], n * C::kBlockK, work);
  };
  if (copies) load_tile(smem->Q, q_map, Q_full, work.i0, work);
  for (int n = 0; n < C::kStages - 1; ++n) fetch(n);

  wait(Q_full, 0);
  for (int n = 0; n < steps; ++n) {
    const int j0 = n * C::kBlockK, parity = n / C::kStages % 2;
    fetch(n + C::kStages - 1);
    wait(K_full[n % C::kStages], parity);
    Scores<C> S;
    start_QK<C>(S, Q, smem->K[n % C::kStages]);
    wgmma_wait<0>();
    if (j0 + C::kBlockK > work.all_see) mask_scores<C>(S, work.keys, a.causal, work.i0, j0, lane);
    softmax_step<C>(S, rows, a.scale);
    Weights<C> P;
    pack_weights<C, T>(P, S);
    wait(V_full[n % C::kStages], parity);
    start_PV<C>(rows, P, smem->V[n % C::kStages]);
    wgmma_wait<0>();
    __syncthreads();  // nobody reads step n any more
  }
  store<C>(rows, a.out, a.lse, work, a.scale, lane);
}

// ./lab tune: Config<D, 64|80|96|128|160|176, 1|2, 2|3|4, 0>
using Configs =
    Table<Config<64, 128, 2, 2, 0>, Config<128, 128, 2, 2, 0>, Config<256, 64, 2, 2, 0>>;

}  // namespace

FLASH_ENTER(registry, name) {
  enter(registry, name, why_not, []<class T>(const AttentionForward<T>& pass) {
    run("tma", pass, Configs(), []<class C>(C) { return tma_kernel<T, C>; });
  });
}

}  // namespace flash::tma_rung
