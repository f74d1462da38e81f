// Task 3.A: flash attention forward on the GPU, in float32 on the ordinary arithmetic units.
//
// given/forward_tile.hpp has the tiles, and says which thread has which rows, keys and columns. The
// scale contains log2(e), so S is in base 2, and exp(s) costs one exp2f.
#include <type_traits>

#include "part3_flash_cuda/flash_attention_cuda.hpp"
#include "part3_flash_cuda/given/forward_launch.hpp"
#include "part3_flash_cuda/given/forward_tile.hpp"

namespace flash {
namespace {

using namespace forward;

// What `./lab tune flash_forward_cuda` tries, D being the width of a head; add your own tiles.
// ./lab tune: Config<D, 32|64|128, 16|32|64|128, 2|4|8>

// ---- The steps ----------------------------------------------------------------------------------

// Q_smem[c * kQStride + i] = scale * q(i0 + i, c0 + c), for the whole tile.
template <class C, class T>
__device__ void load_Q(const Tiles<C>& tiles, const Head<const T>& q, Index i0, Index c0,
                       float scale) {
  // TODO the kBlockQ x kHeadDim tile, by load_tile() (about 3 lines)
}

// S += Q K^T over the kHeadDim columns that are in shared memory.
template <class C>
__device__ void add_QK(Scores<C>& S, const Tiles<C>& tiles, const Thread<C>& thread) {
  // TODO for each column read this thread's kRows values from Q_smem (this warp's rows
  //   begin at row thread.warp * kRowsOfWarp) and its kKeys values from K_smem, and add the product
  //   of each pair to S (about 9 lines)
}

// Sets sees[r] to the number of keys that row r sees in this block, whose first key is j0. The
// scores of the block's other keys become -INFINITY.
template <class C>
__device__ void mask_scores(Scores<C>& S, int (&sees)[kRows], const AttentionShape& shape,
                            bool causal, Index i0, Index j0, const Thread<C>& thread) {
  // TODO row r is query i0 + thread.row(r), which sees shape.visible_keys(query,
  //   causal) keys of all; score n belongs to key thread.key(n) of the block; sees[r] is between 0
  //   and kBlockK (about 7 lines)
}

// Online softmax: the new scores update m, S becomes P = exp2(S - m), l and O are multiplied by
// alpha, and P is added to l.
template <class C>
__device__ void softmax_step(Scores<C>& S, Rows<C>& rows) {
  // TODO row by row: the new m, the same in all lanes of the row; alpha; P; the new l; O
  //   times alpha. A row of -inf only must not give -inf - -inf (about 15 lines)
}

// O += P V. kMasked: row r sees only the first sees[r] keys.
template <bool kMasked, class C>
__device__ void add_PV(Rows<C>& rows, const int (&sees)[kRows], const Tiles<C>& tiles,
                       const Thread<C>& thread) {
  // TODO for each key read this thread's kRows weights from P_smem and its kColumns
  //   values from V_smem, and add the product of each pair to O. A key that row r does not see must
  //   add nothing, not even 0 * NaN (about 13 lines)
}

// out = O / l, for the columns from c0 on, and from the first slice lse = (m + log2(l)) ln 2, since
// m is in base 2. A row with no visible key gets out = 0 and lse = -inf.
template <class C, class T>
__device__ void store(const Rows<C>& rows, const TensorView<T, 4>& out,
                      const TensorView<float, 3>& lse, Index b, Index h, Index i0, Index c0,
                      const Thread<C>& thread) {
  // TODO a row's l is the sum over its lanes; one lane of a row writes lse. Write only
  //   queries and columns that `out` has (about 13 lines)
}

// ---- The kernel ---------------------------------------------------------------------------------

// The kernel takes the tensors one by one: with the struct as its argument nvcc 13 chose other
// registers, and an H200 took 1.07 times as long.
//
// The second launch bound asks for 8 warps on a multiprocessor, so that a thread has up to 255
// registers. For 16 warps it would have 128, and spill.
template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 8 / C::kWarps)
    flash_forward_kernel(TensorView<const T, 4> q, TensorView<const T, 4> k,
                         TensorView<const T, 4> v, TensorView<T, 4> out, TensorView<float, 3> lse,
                         float scale, bool causal, int query_blocks, int slices) {
  const AttentionShape shape{q.extent(0), q.extent(1), q.extent(2), k.extent(2), q.extent(3)};
  // This block's slice of the columns, queries and head. With a causal mask the last queries of all
  // heads come first: they see the most keys, and short blocks fill the end. Without one a head's
  // blocks are neighbours, which find its K and V in the L2 cache.
  const Index all_heads = shape.batch * shape.heads, tile = blockIdx.x / slices;
  const Index c0_out = blockIdx.x % slices * C::kHeadDim;
  const Index i0 =
      (causal ? query_blocks - 1 - tile / all_heads : tile % query_blocks) * C::kBlockQ;
  const Index head = causal ? tile % all_heads : tile / query_blocks, b = head / shape.heads,
              h = head % shape.heads;
  const Head<const T> q_head(q, b, h), k_head(k, b, h), v_head(v, b, h);

  const Index last = (i0 + C::kBlockQ < shape.queries ? i0 + C::kBlockQ : shape.queries) - 1;
  const Index all_see = shape.visible_keys(i0, causal), some_see = shape.visible_keys(last, causal);

  FLASH_DYNAMIC_SHARED(float, shared);
  const Thread<C> thread;
  const Tiles<C> tiles(shared, thread.warp);
  Rows<C> rows;

  // The block of keys from j0 on. `masked`: not every query sees all of them.
  const auto attend = [&](Index j0, auto masked) {
    constexpr bool kMasked = decltype(masked)::value;
    __syncthreads();  // nobody reads the tiles of the keys before any more
    load_tile<C::kBlockK, C::kHeadDim, C::kThreads>(
        v_head, j0, c0_out,
        [&](int j, int c, float value) { tiles.V_smem[j * C::kVStride + c] = value; });
    float S[kRows][C::kKeys] = {};
    for (Index c0 = 0; c0 < shape.head_dim; c0 += C::kHeadDim) {
      if (c0 > 0) __syncthreads();
      if (slices > 1) load_Q(tiles, q_head, i0, c0, scale);
      load_tile<C::kBlockK, C::kHeadDim, C::kThreads>(
          k_head, j0, c0,
          [&](int j, int c, float value) { tiles.K_smem[c * C::kKStride + j] = value; });
      __syncthreads();
      add_QK(S, tiles, thread);
    }
    int sees[kRows] = {};
    if constexpr (kMasked) mask_scores(S, sees, shape, causal, i0, j0, thread);
    softmax_step(S, rows);
    store_P<T>(tiles, S, thread);
    __syncwarp();
    add_PV<kMasked>(rows, sees, tiles, thread);
  };

  if (slices == 1) load_Q(tiles, q_head, i0, 0, scale);
  Index j0 = 0;
  for (; j0 + C::kBlockK <= all_see; j0 += C::kBlockK) attend(j0, std::false_type{});
  for (; j0 < some_see; j0 += C::kBlockK) attend(j0, std::true_type{});
  store(rows, out, lse, b, h, i0, c0_out, thread);
}

}  // namespace

// ---- The contract's functions -------------------------------------------------------------------

template <class T>
std::vector<FlashForwardConfig> flash_attention_forward_configs(Index head_dim) {
  return configs_for<T>(head_dim);
}

template <class T>
void flash_attention_forward_cuda(const AttentionForward<T>& pass,
                                  const std::optional<FlashForwardConfig>& config) {
  const AttentionShape shape = check_attention(pass);
  const double scale = attention_scale(pass.options, shape.head_dim);
  with_config<T>(config, shape.head_dim, [&]<class C>(C) {
    // TODO the launch: one thread block for each head of each batch, block of queries and
    //   slice of kHeadDim columns, with kThreads threads and kSharedBytes of shared memory; the
    //   kernel's scale is in base 2. grid_size() checks the number of blocks (about 9 lines)
    (void)scale;
    throw NotYetImplemented("part3.flash_forward_cuda");
  });
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(FlashForwardCudaTask)
