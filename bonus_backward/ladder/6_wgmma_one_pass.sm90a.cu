// Rung 6: one pass on wgmma. dS goes through shared memory, dQ by additions.
//
// New: a block has 128 keys, and both warpgroups do the same for 64 keys each: S^T, dP^T, P^T and
// dS^T in registers, dV and dK. The fifth product, dQ = dS K, needs the keys of both. So each
// stores its half of dS (transposed, by stmatrix), all 256 threads meet at a named barrier, and
// each warpgroup computes half of dQ. That makes 5 products in place of 7.
//
// dQ is summed up in device memory by red.v4: 16 bytes a lane, from registers. In a trial on an
// H200, shared memory and a bulk reduction by TMA were slower: 589 TFLOP/s against 643 (16384
// tokens, heads of 128).
//
// The order within a step: dV is started before the barrier, dQ and dK behind it, and dQ is added
// while dK is computed. With a mask the longest blocks come first, in sections of heads whose
// queries, dO and dQ stay in the L2 cache (workspace.hpp); only blocks on the diagonal pay for the
// mask.
//
// The bottleneck: both warpgroups wait for the slower one at the barrier. So they compute their
// exponentials at the same time, and the tensor cores wait meanwhile. Rung 7 takes the barrier
// away.
// Measured on an H100 (as rung 5, with the kernels before and behind): heads of 128: 422, 539 and
// 540 TFLOP/s (1.02, 1.05 and 0.98 times cuDNN's in the same run), with a mask 304, 490 and 533
// (1.06, 1.11, 0.99). Heads of 64: 393, 513 and 524 (1.17, 1.18, 1.18), with a mask 279, 458 and
// 520 (1.37, 1.30, 1.22).
#include "bonus_backward/ladder/one_pass.hpp"

namespace flash::wgmma_one_pass {
namespace {

using namespace gradients;

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    wgmma_one_pass_kernel(const __grid_constant__ OnePassMaps maps, OnePassArguments a) {
  constexpr int kD = C::kHeadDim, kBlockQ = C::kBlockQ, kBlockK = C::kBlockK;
  __shared__ OnePassBarriers barriers;
  Barrier &K_full = barriers.K_full, &V_full = barriers.V_full, (&Q_full)[2] = barriers.Q_full,
          (&dO_full)[2] = barriers.dO_full, (&Q_empty)[2] = barriers.Q_empty,
          (&dO_empty)[2] = barriers.dO_empty;
  FLASH_DYNAMIC_SHARED(T, shared);
  const OnePassTiles<T, C> tiles(shared);
  if (threadIdx.x == 0) barriers.init_all();
  __syncthreads();
  wait_for_kernel_before();

  const OnePassSteps<C> steps(a);
  if (threadIdx.x < 128) {
    give_registers<C::kRegistersToCopy>();
    if (threadIdx.x == 0) load_all<C>(maps, tiles, barriers, a, steps);
    return;
  }

  take_registers<C::kRegistersToCompute>();
  const auto compute = [&]<int kGroup>(std::integral_constant<int, kGroup>) {
    using Part = PartOfDQ<C, kGroup>;
    const unsigned thread = threadIdx.x - 128 - 128 * kGroup, lane = thread % 32;
    const int warp = static_cast<int>(thread / 32);
    const RowPlace row_place(lane);
    const Mask<C::kBlockQ, kGroup> mask(static_cast<int>(a.shape.keys) - steps.block.first,
                                        a.causal, warp, lane);
    T* const my_dS = place_of_dS<C, kGroup>(tiles.dS, warp, lane);
    float* const sums = Part::place(a.work, steps.block.head, warp, lane);
    const MatrixDescriptor K_rows = by_rows(tiles.K + kGroup * 64 * 64),
                           V_rows = by_rows(tiles.V + kGroup * 64 * 64);

    float dK[kD / 2], dV[kD / 2];
    FLASH_UNROLL
    for (int i = 0; i < kD / 2; ++i) dK[i] = dV[i] = 0;

    if (steps.count > 0) {
      wait(K_full, 0);
      wait(V_full, 0);
    }
    for (int n = 0; n < steps.count; ++n) {
      // From one lane: ptxas then knows that descriptors are the same in all of them.
      const int stage = __shfl_sync(kAllLanes, n % 2, 0), parity = n / 2 % 2;
      const T *const Q = tiles.Q + stage * C::kQSize, *const dO = tiles.dO + stage * C::kQSize;
      float S[kBlockQ / 2], dP[kBlockQ / 2], dQ[32];
      Packed<kBlockQ> P16, dS16;
      RowNumbers<C> lse, delta;
      wait(Q_full[stage], parity);
      start_scores<kBlockK, kBlockQ, kD, T>(S, K_rows, by_rows(Q));
      wait(dO_full[stage], parity);
      start_scores<kBlockK, kBlockQ, kD, T>(dP, V_rows, by_rows(dO));
      wgmma_wait<1>();
      read_rows<C>(lse, tiles.lse + stage * kRowNumbers, row_place);
      weigh<C>(S, lse, a.scale_in_base_2);
      mask.apply(S, (steps.first + n) * kBlockQ - steps.block.first);
      wgmma_wait<0>();
      read_rows<C>(delta, tiles.delta + stage * kRowNumbers, row_place);
      differentiate<C>(dP, S, delta);
      pack_scores<T, kBlockQ>(dS16, dP);
      store_dS<C>(my_dS + stage * C::kSSize, dS16);

      pack_scores<T, kBlockQ>(P16, S);
      start_gradient<kBlockQ, kD, T>(dV, P16, by_columns<kBlockQ>(dO));
      fence_proxy_async();
      sync_named(1, 256);  // dS is whole; and nobody reads the dS of the step before any more
      Part::start(dQ, tiles.dS + stage * C::kSSize, tiles.K);
      start_gradient<kBlockQ, kD, T>(dK, dS16, by_columns<kBlockQ>(Q));
      wgmma_wait<1>();
      tell(dO_empty[stage], lane);
      Part::add(sums, steps.first + n, dQ);
      wait(Q_full[stage], parity);  // no race without it: it keeps the additions in place
      wgmma_wait<0>();
      tell(Q_empty[stage], lane);
    }

    const int first_row = 64 * kGroup + 16 * warp;
    send_gradient<kBlockK, kD>(maps.d_v, tiles.V, dV, 1, first_row, lane, steps.block);
    sync_named(1, 256);  // both groups have read all of K
    send_gradient<kBlockK, kD>(maps.d_k, tiles.K, dK, a.scale, first_row, lane, steps.block);
    if (lane == 0) tma_wait_read<0>();
  };
  if (threadIdx.x < 256)
    compute(std::integral_constant<int, 0>());
  else
    compute(std::integral_constant<int, 1>());
}

template <class T>
void backward(const AttentionBackward<T>& pass, PassMemory& memory) {
  run_one_pass("wgmma_one_pass", pass, memory,
               []<class C>(C) { return wgmma_one_pass_kernel<T, C>; });
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.backward.add(
      one_pass_entry(name, []<class T>(const AttentionBackward<T>& pass, PassMemory& memory) {
        backward(pass, memory);
      }));
}

}  // namespace flash::wgmma_one_pass
