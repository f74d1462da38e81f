// Rung 4: one barrier a step.
//
// New: shared memory has the queries of three steps, and P and dS of two. In rung 3 a warp waits
// twice a step for all others: until the queries have come, and until P and dS are there. Now the
// queries of step n + 1 come before the barrier in the middle of step n, and nobody writes where
// another may still read: one barrier is enough for both. A warp can be half a step ahead of
// another, so that one computes exponentials while another keeps the tensor cores busy.
//
// The bottleneck is still shared memory. Heads of 64 gain nothing: two thread blocks share a
// multiprocessor, and fill each other's waits without that. Measured on an H100 (bfloat16, 16 heads
// of 128, 4096 queries and keys): 293 TFLOP/s, with a causal mask 269.
#include "bonus_backward/ladder/fragments.hpp"

namespace flash::one_barrier {
namespace {

using namespace gradients;

template <int HeadDim, int Keys, int Queries, int Warps, int Share, int Blocks>
struct Config : gradients::Config<HeadDim, Keys, Queries, Warps, Share, Blocks> {
  static constexpr int
      kStages = 3,
      kUnroll =
          gradients::Config<HeadDim, Keys, Queries, Warps, Share, Blocks>::kUnroll == 4 ? 4 : 1;
  // K, V; Q and dO of each stage; dS, and P if there are partners, of two steps; lse and delta of
  // two steps.
  static constexpr std::size_t kSharedBytes =
      2 * (2 * Config::kOwnSize + 2 * kStages * Config::kStreamedSize +
           2 * Config::kWeights * Config::kWeightsSize) +
      sizeof(float) * 2 * 2 * Queries;
};

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    one_barrier_kernel(AttentionBackward<T> pass, Workspace work, float scale, float scale_log2,
                       int section) {
  const AttentionShape shape = pass.shape();
  const bool causal = pass.options.causal;
  const BlockOfHead block(shape, section, shape.keys, C::kOwn, causal, false);
  const Queries<T> queries(pass, work, block);
  const int j0 = block.first, keys = static_cast<int>(shape.keys);
  float* const sums = work.sums + block.head * work.rows * C::kHeadDim;

  FLASH_DYNAMIC_SHARED(T, shared);
  const Tile<T, C::kHeadDim> K_smem{shared}, V_smem{shared + C::kOwnSize};
  T* const stages = shared + 2 * C::kOwnSize;
  T* const weights = stages + C::kStages * 2 * C::kStreamedSize;
  float* const numbers = reinterpret_cast<float*>(weights + 2 * C::kWeights * C::kWeightsSize);
  const auto at = [&](int n) {
    T* const Q = stages + n % C::kStages * 2 * C::kStreamedSize;
    T* const dS = weights + n % 2 * C::kWeights * C::kWeightsSize;
    float* const lse = numbers + n % 2 * 2 * C::kStreamed;
    return Step<C, T>{{Q}, {Q + C::kStreamedSize}, {dS + C::kWeightsSize}, {dS},
                      lse, lse + C::kStreamed};
  };
  const Lane<C> me;
  Gradient<C> dK = {}, dV = {};

  // Step n takes the queries from n kStreamed on.
  const int begin = causal ? j0 / C::kStreamed : 0,
            end = static_cast<int>((shape.queries + C::kStreamed - 1) / C::kStreamed);
  const auto fetch = [&](int n) {
    if (n < end) copy_queries<C>(at(n), queries, n * C::kStreamed);
    cp_async_commit();
  };
  copy_chunks<C, C::kOwn>(K_smem, Head<const T>(pass.k, block.b, block.h), j0);
  copy_chunks<C, C::kOwn>(V_smem, Head<const T>(pass.v, block.b, block.h), j0);
  fetch(begin);
  fetch(begin + 1);
  cp_async_wait<1>();
  __syncthreads();
  for (int n = begin; n < end; ++n) {
    const int i0 = n * C::kStreamed;
    const Step<C, T> step = at(n);
    add_own_queries<true>(dK, dV, K_smem, V_smem, step, scale_log2, {keys, j0, i0, causal}, me);
    cp_async_wait<0>();
    // P and dS of this step are here, and the queries of the next. Nobody reads the step before any
    // more, nor lse and delta of this step.
    __syncthreads();
    fetch(n + 2);
    add_other_queries(dK, dV, step, me);
    add_dQ(sums, step.dS, K_smem, i0, me);
  }
  store<C>(dK, pass.d_k, block, scale, me);
  store<C>(dV, pass.d_v, block, 1, me);
}

// ./lab tune: Config<D, 64|128, 32|64|128, 4|8, 1|2|4, 1|2>
using Configs = Table<Config<64, 128, 64, 4, 1, 2>, Config<128, 128, 64, 8, 2, 1>,
                      Config<128, 64, 32, 4, 2, 2>>;

}  // namespace

FLASH_ENTER(registry, name) {
  enter<true>(
      registry, name,
      []<class T>(const AttentionBackward<T>& pass, PassMemory& memory) {
        run("one_barrier", pass, memory, Configs(),
            []<class C>(C) { return one_barrier_kernel<T, C>; });
      },
      // Three steps of wider heads are too large for 64 queries, and with 32 rung 3 is faster.
      128,
      // On Hopper there are faster rungs; elsewhere only one thread block has room, where rung 3
      // has two.
      false);
}

}  // namespace flash::one_barrier
