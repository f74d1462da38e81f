// Rung 2: the two passes of the solution on tensor cores.
//
// New: the products are of 16-bit numbers, by mma.sync, in fragments of 16 x 8. Part 3's ladder
// came to them in three steps (tensor cores, tiles without bank conflicts, cp.async), which are
// taken over at once. P and dS are rounded to 16 bits for the products that they are factors of. A
// warp computes S and dP with its own rows as rows, so that what it holds of P and dS in registers
// is a left factor of the next product as it is. No sum crosses thread blocks: same bits in every
// run.
//
// dK and dV of 32 keys and 128 columns would be 256 registers a thread, so two warps share 32 keys,
// with half of the columns each. In S and dP each takes half of the queries, and then needs P and
// dS of its partner: those go through shared memory. (Heads of 64: no sharing. Heads of 256: 4
// warps.)
//
// The bottleneck, in pass 1 with 128 keys and 64 queries of 128 columns a step, on an H100: the
// tensor cores take 3300 clocks by mma.sync, at 62 % of what wgmma reaches, and ldmatrix reads 416
// KiB of shared memory, 3300 clocks, since each warp reads what it multiplies. That is why a warp
// has 32 keys: with 16 it would be 576 KiB. A larger tile has no room in the registers. The order
// of the work is the solution's. It computes 7 products where one pass needs 5. Measured on an H100
// (bfloat16, 16 heads of 128, 4096 queries and keys): 230 TFLOP/s, with a causal mask 209;
// FlashAttention 2, which is built of the same instructions, 287 and 255.
#include "bonus_backward/ladder/fragments.hpp"

namespace flash::two_passes {
namespace {

using namespace gradients;

template <int HeadDim, int Own, int Streamed, int Warps, int Share, int Blocks>
struct Config : gradients::Config<HeadDim, Own, Streamed, Warps, Share, Blocks> {
  static constexpr int kStages = 2, kUnroll = 2;
  // Both own tiles; both streamed ones of each stage; P and dS of pass 1; lse and delta of each
  // stage.
  static constexpr std::size_t kSharedBytes =
      2 * (2 * Config::kOwnSize + 2 * kStages * Config::kStreamedSize +
           (Share > 1 ? 2 * Config::kWeightsSize : 0)) +
      sizeof(float) * 2 * kStages * Streamed;
};

// Pass 1: dK and dV of the block's keys, from all queries that see one of them.
template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    dk_dv_kernel(AttentionBackward<T> pass, Workspace work, float scale, float scale_log2,
                 int section) {
  const AttentionShape shape = pass.shape();
  const bool causal = pass.options.causal;
  const BlockOfHead block(shape, section, shape.keys, C::kOwn, causal, false);
  const Queries<T> queries(pass, work, block);
  const int j0 = block.first, keys = static_cast<int>(shape.keys);

  FLASH_DYNAMIC_SHARED(T, shared);
  const Tile<T, C::kHeadDim> K_smem{shared}, V_smem{shared + C::kOwnSize};
  T* const stages = shared + 2 * C::kOwnSize;
  T* const weights = stages + C::kStages * 2 * C::kStreamedSize;
  float* const numbers =
      reinterpret_cast<float*>(weights + (C::kShare > 1 ? 2 * C::kWeightsSize : 0));
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
    const Step<C, T> step = at(n);
    cp_async_wait<0>();
    __syncthreads();  // the queries are here, and nobody reads the step before any more
    fetch(n + 1);
    add_own_queries<(C::kShare > 1)>(dK, dV, K_smem, V_smem, step, scale_log2,
                                     {keys, j0, n * C::kStreamed, causal}, me);
    if constexpr (C::kShare > 1) {
      __syncthreads();  // P and dS of all warps are here
      add_other_queries(dK, dV, step, me);
    }
  }
  store<C>(dK, pass.d_k, block, scale, me);
  store<C>(dV, pass.d_v, block, 1, me);
}

// Pass 2: dQ of the block's queries, from all keys that one of them sees. A lane has parts of two
// rows of each tile, and their lse and delta.
template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    dq_kernel(AttentionBackward<T> pass, Workspace work, float scale, float scale_log2,
              int section) {
  static_assert(C::kShare == 1);
  const AttentionShape shape = pass.shape();
  const bool causal = pass.options.causal;
  const BlockOfHead block(shape, section, shape.queries, C::kOwn, causal, true);
  const Head<const T> k_head(pass.k, block.b, block.h), v_head(pass.v, block.b, block.h);
  const int i0 = block.first, all_see = static_cast<int>(shape.visible_keys(i0, causal)),
            some_see = static_cast<int>(shape.visible_keys(i0 + C::kOwn - 1, causal));

  FLASH_DYNAMIC_SHARED(T, shared);
  const Tile<T, C::kHeadDim> Q_smem{shared}, dO_smem{shared + C::kOwnSize};
  const auto K_smem = [&](int n) {
    return Tile<T, C::kHeadDim>{shared + 2 * C::kOwnSize + n % C::kStages * 2 * C::kStreamedSize};
  };
  const auto V_smem = [&](int n) {
    return Tile<T, C::kHeadDim>{K_smem(n).data + C::kStreamedSize};
  };
  const Lane<C> me;
  Gradient<C> dQ = {};
  float lse[C::kTiles][2], delta[C::kTiles][2];
  FLASH_UNROLL
  for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
  for (int half = 0; half < 2; ++half) {
    const Index row = block.head * work.rows + i0 + me.row0 + 16 * tile + 8 * half + me.g;
    lse[tile][half] = work.lse[row];
    delta[tile][half] = work.delta[row];
  }

  const int end = (some_see + C::kStreamed - 1) / C::kStreamed;
  const auto fetch = [&](int n) {
    if (n < end) {
      copy_chunks<C, C::kStreamed>(K_smem(n), k_head, n * C::kStreamed);
      copy_chunks<C, C::kStreamed>(V_smem(n), v_head, n * C::kStreamed);
    }
    cp_async_commit();
  };
  copy_chunks<C, C::kOwn>(Q_smem, Head<const T>(pass.q, block.b, block.h), i0);
  copy_chunks<C, C::kOwn>(dO_smem, Head<const T>(pass.d_out, block.b, block.h), i0);
  fetch(0);
  for (int n = 0; n < end; ++n) {
    cp_async_wait<0>();
    __syncthreads();  // the keys are here, and nobody reads the step before any more
    fetch(n + 1);
    FLASH_UNROLL_BY(1)
    for (int s = 0; s < C::kStreamed; s += C::kWide) {
      const int j0 = n * C::kStreamed + s;
      Scores<C> P, dS;
      multiply<C::kUnroll, C>(P, Q_smem, K_smem(n), s, me);
      FLASH_UNROLL
      for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
      for (int m = 0; m < C::kWide / 8; ++m) FLASH_UNROLL
      for (int i = 0; i < 4; ++i)
        P[tile][m][i] = exp2_approximate(fmaf(P[tile][m][i], scale_log2, -lse[tile][i / 2]));
      if (j0 + C::kWide > all_see) FLASH_UNROLL
      for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = i0 + me.row0 + 16 * tile + i / 2 * 8 + me.g,
                  sees = static_cast<int>(shape.visible_keys(row, causal)) - j0 - me.t2 - i % 2;
        FLASH_UNROLL
        for (int m = 0; m < C::kWide / 8; ++m)
          if (8 * m >= sees) P[tile][m][i] = 0;
      }
      multiply<C::kUnroll, C>(dS, dO_smem, V_smem(n), s, me);
      FLASH_UNROLL
      for (int tile = 0; tile < C::kTiles; ++tile) FLASH_UNROLL
      for (int m = 0; m < C::kWide / 8; ++m) FLASH_UNROLL
      for (int i = 0; i < 4; ++i)
        dS[tile][m][i] = P[tile][m][i] * (dS[tile][m][i] - delta[tile][i / 2]);
      Weights<C> W;
      round<C, T>(W, dS);
      add_own<C>(dQ, W, K_smem(n), s, me);  // dQ += dS K
    }
  }
  store<C>(dQ, pass.d_q, block, scale, me);
}

// ./lab tune: Config<D, 64|128, 32|64|128, 4|8, 1|2|4, 1|2>
using KeyConfigs =
    Table<Config<64, 128, 64, 4, 1, 2>, Config<128, 128, 64, 8, 2, 1>, Config<128, 64, 32, 4, 2, 2>,
          Config<256, 64, 64, 8, 4, 1>, Config<256, 64, 32, 8, 2, 1>>;
// Own queries are not shared.
template <int HeadDim, int Queries, int Keys, int Warps, int Blocks>
using QueryConfig = Config<HeadDim, Queries, Keys, Warps, 1, Blocks>;
using QueryConfigs = Table<QueryConfig<64, 128, 64, 4, 2>, QueryConfig<128, 128, 32, 4, 2>,
                           QueryConfig<128, 64, 32, 4, 2>, QueryConfig<256, 128, 32, 8, 1>,
                           QueryConfig<256, 64, 32, 4, 1>>;

template <class T>
void backward(const AttentionBackward<T>& pass, const PassMemory& memory) {
  const AttentionShape shape = check_attention(pass);
  const Workspace work = workspace_at(memory.workspace, shape);
  with_config(KeyConfigs(), shape.head_dim, [&]<class C>(C config) {
    prepare<C::kHeadDim, false>(pass, work);
    if (shape.keys > 0)
      launch_blocks("dk_dv", dk_dv_kernel<T, C>, config, pass, work, shape.keys, shape.queries);
  });
  with_config(QueryConfigs(), shape.head_dim, [&]<class C>(C config) {
    launch_blocks("dq", dq_kernel<T, C>, config, pass, work, shape.queries, shape.keys);
  });
}

}  // namespace

FLASH_ENTER(registry, name) {
  enter<false>(registry, name, []<class T>(const AttentionBackward<T>& pass, PassMemory& memory) {
    backward(pass, memory);
  });
}

}  // namespace flash::two_passes
