// Rung 7: dQ one step late, and mbarriers in place of the barrier of both
// warpgroups.
//
// New: no warpgroup waits for the dS of its own step. It stores its half of dS, tells so by an
// mbarrier, and goes on to the products of its own keys. The dQ that it starts in a step is that
// of the step before, whose dS both halves have long stored. So the two warpgroups may be half
// a step apart: while one computes exponentials, the tensor cores have the other one's products.
// For this, dS has two buffers.
//
// dQ is added while dK is still being computed. ptxas would move the wait for dK before the
// additions. One more wait at an mbarrier, whose phase has ended long ago, keeps it behind them.
//
// The step is compiled for each stage and for each warpgroup: then all addresses in shared memory
// are constants. With the stage in a variable, 67 of the step's 632 instructions only moved
// descriptors to uniform registers, and 28 bytes of registers were spilled.
//
// The bottleneck: for a step of 128 keys and 64 queries of heads of 128 the tensor cores need
// 5 * 512 = 2560 clocks, and the unit for exponentials 512 for its 8192. At 1024 tokens the two
// kernels around this one take 0.16 ms of 0.57 to 0.75.
// Measured on an H100 (as rung 6): heads of 128: 458, 609 and 651 TFLOP/s (1.11, 1.19 and 1.18
// times cuDNN's in the same run), with a mask 319, 540 and 638 (1.11, 1.22, 1.19). Heads of 64:
// 414, 555 and 589 (1.23, 1.28, 1.33), with a mask 278, 484 and 578 (1.37, 1.38, 1.36). On two
// machines the geometric mean was 1.14 and 1.17 for heads of 128, 1.27 and 1.32 for heads of 64.
// Did not pay: turns at the exponentials (heads of 64: 1.16 in place of 1.23), and dV started
// before dS (heads of 128: equal; heads of 64: spills).
#include "bonus_backward/ladder/one_pass.hpp"

namespace flash::one_block_late {
namespace {

using namespace gradients;

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    one_block_late_kernel(const __grid_constant__ OnePassMaps maps, OnePassArguments a) {
  constexpr int kD = C::kHeadDim, kBlockQ = C::kBlockQ, kBlockK = C::kBlockK;
  __shared__ OnePassBarriers barriers;
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

    const auto start_dQ = [&](float(&dQ)[32], int n, int buffer) {
      wait(barriers.dS_full[buffer], n / 2 % 2);
      Part::start(dQ, tiles.dS + buffer * C::kSSize, tiles.K);
    };

    const auto step = [&]<bool kFirst, int kStage>(int n, std::bool_constant<kFirst>,
                                                   std::integral_constant<int, kStage>) {
      const int parity = n / 2 % 2;
      const T *const Q = tiles.Q + kStage * C::kQSize, *const dO = tiles.dO + kStage * C::kQSize;
      float S[kBlockQ / 2], dP[kBlockQ / 2];
      Packed<kBlockQ> P16, dS16;
      wait(barriers.Q_full[kStage], parity);
      start_scores<kBlockK, kBlockQ, kD, T>(S, K_rows, by_rows(Q));
      wait(barriers.dO_full[kStage], parity);
      start_scores<kBlockK, kBlockQ, kD, T>(dP, V_rows, by_rows(dO));

      constexpr bool kEarly = kBlockQ == 64;  // registers: lse while S is computed
      RowNumbers<C> lse, delta;
      if (kEarly) read_rows<C>(lse, tiles.lse + kStage * kRowNumbers, row_place);
      wgmma_wait<1>();
      if (!kEarly) read_rows<C>(lse, tiles.lse + kStage * kRowNumbers, row_place);
      weigh<C>(S, lse, a.scale_in_base_2);
      mask.apply(S, (steps.first + n) * kBlockQ - steps.block.first);

      wgmma_wait<0>();
      read_rows<C>(delta, tiles.delta + kStage * kRowNumbers, row_place);
      differentiate<C>(dP, S, delta);
      pack_scores<T, kBlockQ>(dS16, dP);
      wait(barriers.dS_empty[kStage], parity ^ 1);
      store_dS<C>(my_dS + kStage * C::kSSize, dS16);
      fence_proxy_async();
      tell(barriers.dS_full[kStage], lane);

      pack_scores<T, kBlockQ>(P16, S);
      start_gradient<kBlockQ, kD, T>(dV, P16, by_columns<kBlockQ>(dO));
      float dQ[32];
      if constexpr (!kFirst) start_dQ(dQ, n - 1, kStage ^ 1);
      start_gradient<kBlockQ, kD, T>(dK, dS16, by_columns<kBlockQ>(Q));
      wgmma_wait<1>();
      tell(barriers.dO_empty[kStage], lane);
      if constexpr (!kFirst) {
        tell(barriers.dS_empty[kStage ^ 1], lane);
        Part::add(sums, steps.first + n - 1, dQ);
      }
      wait(barriers.Q_full[kStage], parity);  // no race without it: it keeps the additions in place
      wgmma_wait<0>();
      tell(barriers.Q_empty[kStage], lane);
    };

    constexpr std::integral_constant<int, 0> kEven;
    constexpr std::integral_constant<int, 1> kOdd;
    if (steps.count > 0) {
      wait(barriers.K_full, 0);
      wait(barriers.V_full, 0);
      step(0, std::true_type(), kEven);
    }
    for (int n = 1; n < steps.count; n += 2) {
      step(n, std::false_type(), kOdd);
      if (n + 1 < steps.count) step(n + 1, std::false_type(), kEven);
    }

    const int first_row = 64 * kGroup + 16 * warp;
    send_gradient<kBlockK, kD>(maps.d_v, tiles.V, dV, 1, first_row, lane, steps.block);
    if (steps.count > 0) {
      float dQ[32];
      start_dQ(dQ, steps.count - 1, (steps.count - 1) % 2);
      wgmma_wait<0>();
      Part::add(sums, steps.first + steps.count - 1, dQ);
    }
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
  run_one_pass("one_block_late", pass, memory,
               []<class C>(C) { return one_block_late_kernel<T, C>; });
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.backward.add(
      one_pass_entry(name, []<class T>(const AttentionBackward<T>& pass, PassMemory& memory) {
        backward(pass, memory);
      }));
}

}  // namespace flash::one_block_late
