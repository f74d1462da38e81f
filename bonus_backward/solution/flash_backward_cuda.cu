// The bonus task: the backward pass of flash attention on the GPU, in three kernels and float32 on
// the ordinary arithmetic units.
//
//   delta       a warp a row
//   dK and dV   a thread block owns a block of keys; the queries that see them stream past
//   dQ          a thread block owns a block of queries; the keys that they see stream past
//
// P is computed again from lse in the last two: 7 products where one pass would need 5, and no two
// thread blocks that add to the same element. given/backward_tile.hpp has the tiles, who owns what
// of them, and the products. Everything that goes into an exponent is scaled by log2(e): P = exp2(S
// - lse) costs one exp2f.
#include <type_traits>

#include "bonus_backward/flash_backward_cuda.hpp"
#include "bonus_backward/given/backward_configurations.hpp"
#include "bonus_backward/given/backward_launch.hpp"
#include "bonus_backward/given/backward_tile.hpp"
#include "common/cuda/device_tensor.hpp"

namespace flash {
namespace {

using namespace backward;

// What `./lab tune flash_backward_cuda` tries, D being the width of a head; add your own tiles.
// ./lab tune: Config<D, 32|64|128, 16|32|64, 2|4|8, 4|8>

// ---- delta --------------------------------------------------------------------------------------

constexpr int kDeltaThreads = 256;
constexpr int kDeltaRows = kDeltaThreads / kWarpSize;  // of a thread block

template <class T>
__global__ void delta_kernel(TensorView<const T, 4> out, TensorView<const T, 4> d_out,
                             TensorView<float, 3> delta) {
  const Index heads = out.extent(1), queries = out.extent(2);
  const Index row = Index{blockIdx.x} * kDeltaRows + threadIdx.x / kWarpSize;
  const Index b = row / queries / heads, h = row / queries % heads, i = row % queries;
  if (b >= out.extent(0)) return;
  // BEGIN SOLUTION the row's sum of to_float(out(b, h, i, c)) * to_float(d_out(b, h, i, c)): each
  //   lane of the warp has a share of the columns, warp_sum() adds them up, and one lane writes
  //   (about 4 lines)
  float sum = 0;
  for (Index c = threadIdx.x % kWarpSize; c < out.extent(3); c += kWarpSize)
    sum += to_float(out(b, h, i, c)) * to_float(d_out(b, h, i, c));
  sum = warp_sum(sum);
  if (threadIdx.x % kWarpSize == 0) delta(b, h, i) = sum;
  // END SOLUTION
}

// ---- dK and dV ----------------------------------------------------------------------------------

// S, P, dP and dS are transposed here: row r is key j0 + thread.row(r), score n is query i0 +
// thread.streamed(n).
template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    dk_dv_kernel(AttentionBackward<T> pass, TensorView<const float, 3> delta, float scale) {
  const AttentionShape shape = pass.shape();
  const bool causal = pass.options.causal;
  // The first keys of all heads come first: with a causal mask they are seen by the most queries,
  // and short blocks fill the end.
  const Index heads = shape.heads, all_heads = shape.batch * heads, queries = shape.queries;
  const Index j0 = blockIdx.x / all_heads * C::kOwn, b = blockIdx.x % all_heads / heads,
              h = blockIdx.x % heads;
  const Head<const T> q_head(pass.q, b, h), d_out_head(pass.d_out, b, h);

  FLASH_DYNAMIC_SHARED(float, shared);
  const Thread<C> thread;
  const Tiles<C> tiles(shared, thread.warp);
  float *const K_smem = tiles.own[0], *const V_smem = tiles.own[1], *const Q_smem = tiles.stream[0],
               *const dO_smem = tiles.stream[1];
  Gradient<C> dK = {}, dV = {};

  // The queries from i0 on. `masked`: not every key of this block is seen by all of them, or
  // queries end.
  const auto add_queries = [&](Index i0, auto masked) {
    constexpr bool kMasked = decltype(masked)::value;
    const int left = queries - i0 < C::kStream ? static_cast<int>(queries - i0) : C::kStream;
    const int ahead = diagonal<C>(causal, i0, j0);
    const auto sees = [&](int r, int s) {
      return !kMasked || (s < left && thread.row(r) <= s + ahead);
    };
    __syncthreads();  // nobody reads the tiles of the queries before any more
    load_rows<C::kStream, C>(Q_smem, q_head, i0);
    load_rows<C::kStream, C>(dO_smem, d_out_head, i0);
    for (int s = threadIdx.x; s < C::kStream; s += C::kThreads) {
      tiles.lse[s] = i0 + s < queries ? base_2(pass.lse(b, h, i0 + s)) : 0;
      tiles.delta[s] = i0 + s < queries ? delta(b, h, i0 + s) : 0;
    }
    __syncthreads();

    // BEGIN SOLUTION dV: S = K Q^T by multiply() (K_smem is scaled), P = exp2(S - lse), 0 where
    //   sees(r, s) is false, with s = thread.streamed(n); store_weights(), and dV += P dO by
    //   add_product() (about 10 lines)
    Scores<C> S = {};
    multiply<C>(S, K_smem, Q_smem, thread);
    FLASH_UNROLL
    for (int r = 0; r < C::kRows; ++r) {
      FLASH_UNROLL
      for (int n = 0; n < C::kScores; ++n) {
        const int s = thread.streamed(n);
        S[r][n] = sees(r, s) ? exp2f(S[r][n] - tiles.lse[s]) : 0;
      }
    }
    store_weights<C>(tiles.weights, S, thread);
    __syncwarp();
    add_product<kMasked, C>(dV, tiles.weights, dO_smem, thread, sees);
    // END SOLUTION

    // BEGIN SOLUTION dK: dP = V dO^T, P by load_weights(), dS = P * (dP - delta), 0 where sees(r,
    //   s) is false; dS takes P's place in tiles.weights when all lanes have read that; dK += dS Q
    //   (about 13 lines)
    Scores<C> P, dP = {};
    multiply<C>(dP, V_smem, dO_smem, thread);
    load_weights<C>(P, tiles.weights, thread);
    FLASH_UNROLL
    for (int r = 0; r < C::kRows; ++r) {
      FLASH_UNROLL
      for (int n = 0; n < C::kScores; ++n) {
        const int s = thread.streamed(n);
        dP[r][n] = sees(r, s) ? P[r][n] * (dP[r][n] - tiles.delta[s]) : 0;
      }
    }
    __syncwarp();
    store_weights<C>(tiles.weights, dP, thread);
    __syncwarp();
    add_product<kMasked, C>(dK, tiles.weights, Q_smem, thread, sees);
    // END SOLUTION
  };

  load_rows<C::kOwn, C>(K_smem, Head<const T>(pass.k, b, h), j0, scale * kLog2E);
  load_rows<C::kOwn, C>(V_smem, Head<const T>(pass.v, b, h), j0);
  // BEGIN SOLUTION the queries that see a key of this block, in steps of kStream: add_queries(i0,
  //   std::true_type{}) where some do not see all of its keys, or queries end; add_queries(i0,
  //   std::false_type{}) elsewhere (about 6 lines)
  for (Index i0 = causal ? j0 : 0; i0 < queries; i0 += C::kStream)
    if ((causal && i0 < j0 + C::kOwn - 1) || i0 + C::kStream > queries)
      add_queries(i0, std::true_type{});
    else
      add_queries(i0, std::false_type{});
  // END SOLUTION
  store<C>(dK, Head<T>(pass.d_k, b, h), j0, scale, thread);
  store<C>(dV, Head<T>(pass.d_v, b, h), j0, 1, thread);
}

// ---- dQ -----------------------------------------------------------------------------------------

// Row r is query i0 + thread.row(r), score n is key j0 + thread.streamed(n).
template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    dq_kernel(AttentionBackward<T> pass, TensorView<const float, 3> delta, float scale,
              int query_blocks) {
  const AttentionShape shape = pass.shape();
  const bool causal = pass.options.causal;
  // The last queries of all heads come first: with a causal mask they see the most keys.
  const Index heads = shape.heads, all_heads = shape.batch * heads, queries = shape.queries;
  const Index i0 = (query_blocks - 1 - blockIdx.x / all_heads) * C::kOwn,
              b = blockIdx.x % all_heads / heads, h = blockIdx.x % heads;
  const Head<const T> k_head(pass.k, b, h), v_head(pass.v, b, h);

  FLASH_DYNAMIC_SHARED(float, shared);
  const Thread<C> thread;
  const Tiles<C> tiles(shared, thread.warp);
  float *const Q_smem = tiles.own[0], *const dO_smem = tiles.own[1],
               *const K_smem = tiles.stream[0], *const V_smem = tiles.stream[1];
  Gradient<C> dQ = {};
  float lse_i[C::kRows], delta_i[C::kRows];  // of this thread's rows
  FLASH_UNROLL
  for (int r = 0; r < C::kRows; ++r) {
    const Index i = i0 + thread.row(r);
    lse_i[r] = i < queries ? base_2(pass.lse(b, h, i)) : 0;
    delta_i[r] = i < queries ? delta(b, h, i) : 0;
  }

  // The keys from j0 on. `masked`: not every query sees all of them.
  const auto add_keys = [&](Index j0, auto masked) {
    constexpr bool kMasked = decltype(masked)::value;
    const int left = shape.keys - j0 < C::kStream ? static_cast<int>(shape.keys - j0) : C::kStream;
    const int ahead = diagonal<C>(causal, i0, j0);
    const auto sees = [&](int r, int s) {
      return !kMasked || (s < left && s <= thread.row(r) + ahead);
    };
    __syncthreads();  // nobody reads the tiles of the keys before any more
    load_rows<C::kStream, C>(K_smem, k_head, j0);
    load_rows<C::kStream, C>(V_smem, v_head, j0);
    __syncthreads();

    // BEGIN SOLUTION dQ: S = Q K^T (Q_smem is scaled) and dP = dO V^T, P = exp2(S - lse), dS = P
    //   * (dP - delta), 0 where sees(r, s) is false; dQ += dS K (about 13 lines)
    Scores<C> S = {}, dP = {};
    multiply<C>(S, Q_smem, K_smem, thread);
    multiply<C>(dP, dO_smem, V_smem, thread);
    FLASH_UNROLL
    for (int r = 0; r < C::kRows; ++r) {
      FLASH_UNROLL
      for (int n = 0; n < C::kScores; ++n) {
        const float P = exp2f(S[r][n] - lse_i[r]);
        dP[r][n] = sees(r, thread.streamed(n)) ? P * (dP[r][n] - delta_i[r]) : 0;
      }
    }
    store_weights<C>(tiles.weights, dP, thread);
    __syncwarp();
    add_product<kMasked, C>(dQ, tiles.weights, K_smem, thread, sees);
    // END SOLUTION
  };

  load_rows<C::kOwn, C>(Q_smem, Head<const T>(pass.q, b, h), i0, scale * kLog2E);
  load_rows<C::kOwn, C>(dO_smem, Head<const T>(pass.d_out, b, h), i0);
  // BEGIN SOLUTION the keys that a query of this block sees, in steps of kStream: add_keys(j0,
  //   std::true_type{}) where some do not see all of them, or keys end; add_keys(j0,
  //   std::false_type{}) elsewhere (about 7 lines)
  const Index last = (i0 + C::kOwn < queries ? i0 + C::kOwn : queries) - 1;
  const Index all_see = shape.visible_keys(i0, causal), some_see = shape.visible_keys(last, causal);
  for (Index j0 = 0; j0 < some_see; j0 += C::kStream)
    if (j0 + C::kStream > all_see)
      add_keys(j0, std::true_type{});
    else
      add_keys(j0, std::false_type{});
  // END SOLUTION
  store<C>(dQ, Head<T>(pass.d_q, b, h), i0, scale, thread);
}

}  // namespace

// ---- The contract's functions -------------------------------------------------------------------

template <class T>
FlashBackwardBlocks flash_backward_blocks(Index head_dim) {
  check_at_least("head_dim", head_dim, 1);
  check_supported(why_not({.head_dim = head_dim}));
  FlashBackwardBlocks blocks;
  with_config(Compiled<T>(), head_dim, [&]<class C>(C) { blocks = {C::kOwn, C::kStream}; });
  return blocks;
}

template <class T>
void flash_backward_delta_cuda(TensorView<const T, 4> out, TensorView<const T, 4> d_out,
                               TensorView<float, 3> delta, Stream stream) {
  check_not_empty("out", out.shape());
  check_view("out", out, out.shape());
  check_view("d_out", d_out, out.shape());
  check_view("delta", delta, {out.extent(0), out.extent(1), out.extent(2)});
  // BEGIN SOLUTION the launch: kDeltaThreads threads a block, kDeltaRows rows each, on `stream`
  //   (about 3 lines)
  // STUB throw NotYetImplemented("bonus.flash_backward_cuda");
  launch("flash_backward_delta", delta_kernel<T>,
         {.grid = grid_size((delta.size() + kDeltaRows - 1) / kDeltaRows),
          .block = kDeltaThreads,
          .stream = stream},
         out, d_out, delta);
  // END SOLUTION
}

template <class T>
void flash_backward_dk_dv_cuda(const AttentionBackward<T>& pass, TensorView<const float, 3> delta) {
  const AttentionShape shape = check_inputs(pass, delta);
  check_view("d_k", pass.d_k, shape.of_keys());
  check_view("d_v", pass.d_v, shape.of_keys());
  const float scale = static_cast<float>(attention_scale(pass.options, shape.head_dim));
  with_config(Compiled<T>(), shape.head_dim, [&]<class C>(C) {
    if (shape.keys == 0) return;
    // BEGIN SOLUTION the launch: one thread block for each (block of kOwn keys, head), with
    //   kThreads threads and kSharedBytes of shared memory, on pass.stream. grid_size() checks the
    //   number of blocks (about 6 lines)
    // STUB (void)scale;
    // STUB throw NotYetImplemented("bonus.flash_backward_cuda");
    launch("flash_backward_dk_dv", dk_dv_kernel<T, C>,
           {.grid = grid_size(shape.batch * shape.heads * ((shape.keys + C::kOwn - 1) / C::kOwn)),
            .block = static_cast<unsigned>(C::kThreads),
            .shared_bytes = C::kSharedBytes,
            .stream = pass.stream},
           pass, delta, scale);
    // END SOLUTION
  });
}

template <class T>
void flash_backward_dq_cuda(const AttentionBackward<T>& pass, TensorView<const float, 3> delta) {
  const AttentionShape shape = check_inputs(pass, delta);
  check_view("d_q", pass.d_q, shape.of_queries());
  const float scale = static_cast<float>(attention_scale(pass.options, shape.head_dim));
  with_config(Compiled<T>(), shape.head_dim, [&]<class C>(C) {
    // BEGIN SOLUTION the launch: one thread block for each (block of kOwn queries, head), on
    //   pass.stream (about 7 lines)
    // STUB (void)scale;
    // STUB throw NotYetImplemented("bonus.flash_backward_cuda");
    const Index query_blocks = (shape.queries + C::kOwn - 1) / C::kOwn;
    launch("flash_backward_dq", dq_kernel<T, C>,
           {.grid = grid_size(shape.batch * shape.heads * query_blocks),
            .block = static_cast<unsigned>(C::kThreads),
            .shared_bytes = C::kSharedBytes,
            .stream = pass.stream},
           pass, delta, scale, static_cast<int>(query_blocks));
    // END SOLUTION
  });
}

template <class T>
void flash_attention_backward_cuda(const AttentionBackward<T>& pass) {
  const AttentionShape shape = check_attention(pass);
  check_supported(why_not(shape));
  const DeviceTensor<float, 3> delta(shape.of_rows(), pass.stream);
  flash_backward_delta_cuda(pass.out, pass.d_out, delta.view(), pass.stream);
  flash_backward_dk_dv_cuda(pass, delta.view());
  flash_backward_dq_cuda(pass, delta.view());
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(FlashBackwardCudaTask)
