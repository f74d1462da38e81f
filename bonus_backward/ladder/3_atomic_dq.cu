// Rung 3: one pass on tensor cores, dQ by atomic additions.
//
// New: as in rung 1, a thread block also multiplies its dS by K, and adds that share of dQ to sums
// in device memory. dS has to cross the warps for it: the product is over all keys of the block.
// The sums lie as the lanes have them in registers (workspace.hpp), so that on Hopper one
// instruction adds 4 numbers, and a warp 512 bytes in a row.
//
// Expected: 7 / 5 = 1.4 times rung 2. The bottleneck, counted as there: tensor cores 4100 clocks,
// shared memory 576 KiB, 4600 clocks: 32 KiB for storing P and dS, and 128 for dS K. A step of 64
// queries adds 32 KiB to dQ, in the L2 cache; with 64 keys a thread block it would be twice as much
// for the same work, and 12 % slower. Measured on an H100 (bfloat16, 16 heads of 128, 4096 queries
// and keys): 285 TFLOP/s, with a causal mask 261; 32 heads of 64: 304 and 291, FlashAttention 2 270
// and 226.
#include "bonus_backward/ladder/fragments.hpp"

namespace flash::atomic_dq {
namespace {

using namespace gradients;

template <int HeadDim, int Keys, int Queries, int Warps, int Share, int Blocks>
struct Config : gradients::Config<HeadDim, Keys, Queries, Warps, Share, Blocks> {
  static constexpr int kStages = 2;
  // K, V; Q and dO of each stage; dS, and P if there are partners; lse and delta of each stage.
  static constexpr std::size_t kSharedBytes =
      2 * (2 * Config::kOwnSize + 2 * kStages * Config::kStreamedSize +
           Config::kWeights * Config::kWeightsSize) +
      sizeof(float) * 2 * kStages * Queries;
};

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    atomic_dq_kernel(AttentionBackward<T> pass, Workspace work, float scale, float scale_log2,
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
  float* const numbers = reinterpret_cast<float*>(weights + C::kWeights * C::kWeightsSize);
  const auto at = [&](int n) {
    T* const Q = stages + n % C::kStages * 2 * C::kStreamedSize;
    float* const lse = numbers + n % C::kStages * 2 * C::kStreamed;
    return Step<C, T>{{Q}, {Q + C::kStreamedSize}, {weights + C::kWeightsSize}, {weights},
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
  for (int n = begin; n < end; ++n) {
    const int i0 = n * C::kStreamed;
    const Step<C, T> step = at(n);
    cp_async_wait<0>();
    __syncthreads();  // the queries are here, and nobody reads the step before any more
    fetch(n + 1);
    add_own_queries<true>(dK, dV, K_smem, V_smem, step, scale_log2, {keys, j0, i0, causal}, me);
    __syncthreads();  // P and dS of all warps are here
    add_other_queries(dK, dV, step, me);
    add_dQ(sums, step.dS, K_smem, i0, me);
  }
  store<C>(dK, pass.d_k, block, scale, me);
  store<C>(dV, pass.d_v, block, 1, me);
}

// ./lab tune: Config<D, 64|128, 32|64|128, 4|8, 1|2|4, 1|2>
using Configs =
    Table<Config<64, 128, 64, 4, 1, 2>, Config<128, 128, 64, 8, 2, 1>, Config<128, 64, 32, 4, 2, 2>,
          Config<256, 64, 64, 8, 4, 1>, Config<256, 64, 32, 8, 2, 1>>;

}  // namespace

FLASH_ENTER(registry, name) {
  enter<true>(registry, name, []<class T>(const AttentionBackward<T>& pass, PassMemory& memory) {
    run("atomic_dq", pass, memory, Configs(), []<class C>(C) { return atomic_dq_kernel<T, C>; });
  });
}

}  // namespace flash::atomic_dq
