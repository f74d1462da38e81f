// Rung 8: dQ added up in a fixed order, so that the same inputs give the same bits.
//
// New: a counter for each step's queries of a head. Key blocks add their share of dQ in turns: the
// block whose turn is number n waits until the counter stands at n, and raises it when its
// additions are done. A block takes its number from one more counter when it starts, and waits only
// for lower numbers: so nobody waits for a block that has not started.
//
// A spare warp beside the loading thread asks for the counter in memory, and tells the two
// warpgroups by an mbarrier: they never ask themselves, since ptxas serializes wgmma around such
// a loop. Their additions are behind a fence one step later, when the next products have been
// started; then the spare warp raises the counter.
//
// With a mask the key blocks go the other way, the last one first: its diagonal step is the first
// one of those queries. Block n needs block n + 1 one step earlier, so nobody waits long. With
// and without a mask neighbours in time are of different heads: up to 8 heads take turns. More
// heads were slower (74: heads of 64 at 1024 tokens 265 TFLOP/s, 8: 297).
//
// It is not among the best, since the order costs 20 to 40 % of rung 7's time: the fence waits for
// all additions. Later in the step the fence is cheaper, but the next block waits longer: that was
// slower by 8 to 20 %. Measured on an H100 (as rung 6): heads of 64: 294, 431 and 425 TFLOP/s
// (0.87, 1.00 and 0.96 times cuDNN's in the same run), with a mask 224, 381 and 434
// (1.10, 1.08, 1.02). Heads of 128: 325, 393 and 416 (0.79, 0.77, 0.75), with a mask 230, 347 and
// 383 (0.80, 0.79, 0.72). There rung 5 gives the same bits, too, and takes 1.05 to 1.21 times as
// long (on an H200).
#include "bonus_backward/ladder/one_pass.hpp"

namespace flash::ordered {
namespace {

using namespace gradients;

// Counters stand behind the sums: of the blocks that have started, and for each step's queries of a
// head of the turns that have ended.
__device__ __forceinline__ unsigned turn_of(const unsigned* counter) {
#ifdef FLASH_SIMT
  return atomicAdd(const_cast<unsigned*>(counter), 0u);
#else
  unsigned turn;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(turn) : "l"(counter) : "memory");
  return turn;
#endif
}
__device__ __forceinline__ void end_turn(unsigned* counter) {
  __threadfence();
  atomicAdd(counter, 1u);
}

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    ordered_kernel(const __grid_constant__ OnePassMaps maps, OnePassArguments a) {
  constexpr int kD = C::kHeadDim, kBlockQ = C::kBlockQ, kBlockK = C::kBlockK;
  __shared__ OnePassBarriers barriers;
  FLASH_DYNAMIC_SHARED(T, shared);
  const OnePassTiles<T, C> tiles(shared);
  __shared__ Barrier is_turn, was_added;
  __shared__ int my_number;
  unsigned* const counters =
      reinterpret_cast<unsigned*>(a.work.sums + a.work.heads * a.work.rows * kD);
  wait_for_kernel_before();
  if (threadIdx.x == 0) {
    my_number = static_cast<int>(atomicAdd(counters, 1u));
    init(is_turn, 1);
    init(was_added, 8);
    barriers.init_all();
  }
  __syncthreads();

  const OnePassSteps<C> steps(
      a, BlockOfHead(a.shape, a.section, a.shape.keys, kBlockK, true, a.causal, my_number));
  // Of a step's queries, with a mask, the last key block that they see any key of.
  const auto last_block = [&](int step) {
    const int last = static_cast<int>(a.shape.keys - 1) / kBlockK,
              diagonal = step * kBlockQ / kBlockK;
    return diagonal < last ? diagonal : last;
  };
  unsigned* const turns = counters + 1 + steps.block.head * (a.work.rows / kBlockQ);

  if (threadIdx.x < 128) {
    give_registers<C::kRegistersToCopy>();
    if (threadIdx.x == 0) load_all<C>(maps, tiles, barriers, a, steps);
    if (threadIdx.x == 32)
      for (int n = 0; n < steps.count; ++n) {
        const int step = steps.first + n, block = steps.block.first / kBlockK;
        const unsigned turn = a.causal ? last_block(step) - block : block;
        unsigned* const counter = turns + step;
        while (turn_of(counter) != turn) __nanosleep(20);
        arrive(is_turn);
        wait(was_added, n % 2);
        end_turn(counter);
      }
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

    const auto end_adding = [&] {
      __threadfence();
      tell(was_added, lane);
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

      if (n > 1) end_adding();

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
        wait(is_turn, (n - 1) % 2);  // no race without it: only the order of the sums
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
      if (steps.count > 1) end_adding();
      wgmma_wait<0>();
      wait(is_turn, (steps.count - 1) % 2);  // no race without it: the order again
      Part::add(sums, steps.first + steps.count - 1, dQ);
      end_adding();
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

Index counter_bytes(const AttentionShape& shape) {
  const Index steps = padded_rows(shape) / (shape.head_dim <= 64 ? 128 : 64);
  return sizeof(unsigned) * (1 + shape.batch * shape.heads * steps);
}

template <class T>
void backward(const AttentionBackward<T>& pass, PassMemory& memory) {
  const AttentionShape shape = check_attention(pass);
  const std::size_t sums = one_pass_workspace(shape);
  device::fill_bytes(static_cast<char*>(memory.workspace) + sums, 0,
                     static_cast<std::size_t>(counter_bytes(shape)), pass.stream);
  run_one_pass("ordered", pass, memory, []<class C>(C) { return ordered_kernel<T, C>; });
}

}  // namespace

FLASH_ENTER(registry, name) {
  const auto run = []<class T>(const AttentionBackward<T>& pass, PassMemory& memory) {
    backward(pass, memory);
  };
  Entry<AttentionBackward> entry = one_pass_entry(name, run);
  entry.workspace_bytes = [](const AttentionProblem& problem) {
    return one_pass_workspace(problem.shape) +
           static_cast<std::size_t>(counter_bytes(problem.shape));
  };
  entry.best = false;
  registry.backward.add(std::move(entry));
}

}  // namespace flash::ordered
