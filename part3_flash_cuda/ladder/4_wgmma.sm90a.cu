// Rung 4: wgmma, the matrix instruction of Hopper.
//
// New: wgmma multiplies 64 x 16 by 16 x N numbers in one instruction of a warpgroup, 4 warps, and
// reads B, and A of Q K^T, from shared memory itself. There is no ldmatrix, and there are no
// registers for fragments of K and V. It reaches the tensor cores' full rate on Hopper, 4096
// floating-point operations a clock and multiprocessor; mma.sync does not. Here it is used as if it
// were synchronous: start, wait, go on. A thread block is one warpgroup, so that several fit on a
// multiprocessor.
//
// The bottleneck, counted for a block and a step of 64 queries, 64 keys, heads of 128: the products
// take 512 clocks of the tensor cores. 4096 exponentials take 256 clocks, and about 5 other
// operations for each score 160. Before them the block waits for K and V from device memory. All of
// that comes one after the other; only other blocks can use the tensor cores meanwhile.
// Measured on an H200 (bfloat16, 16 heads of 128, 4096 keys): 443 TFLOP/s. Nsight Compute: the
// tensor cores are busy 47 % of the time; stalls "wait", "barrier" and "long scoreboard".
#include "common/cuda/async_copy.hpp"
#include "part3_flash_cuda/ladder/warpgroups.hpp"

namespace flash::wgmma_rung {
namespace {

using namespace hopper;

// Copies a tile, rows row0 and on of a head; zeros where there are none.
template <class C, class Tile, class T>
__device__ __forceinline__ void copy_tile(Tile& tile, const Head<const T>& x, int row0) {
  constexpr int kChunks = C::kHeadDim / kChunk, kStep = C::kThreads / kChunks;
  const int c = threadIdx.x % kChunks;
  FLASH_UNROLL
  for (int step = 0; step < Tile::kRows / kStep; ++step) {
    const int row = threadIdx.x / kChunks + step * kStep;
    const bool exists = row0 + row < x.rows && c * kChunk < x.columns;
    const Index place = exists ? (row0 + row) * x.row_stride + c * kChunk : 0;
    cp_async_16(tile.chunk(row, c), x.data + place, exists ? 16 : 0);
  }
}

// Thread blocks a multiprocessor has at a time. Four need at most 128 registers a thread: with 133
// it has three, and heads of 128 take 1.08 times as long (H200).
template <class C>
constexpr int kBlocks = C::kHeadDim + C::kBlockK <= 192 ? 4 : 1;

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, kBlocks<C>)
    wgmma_kernel(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                 TensorView<T, 4> out, TensorView<float, 3> lse, float scale, bool causal) {
  const AttentionShape shape{q.extent(0), q.extent(1), q.extent(2), k.extent(2), q.extent(3)};
  const Work work(shape, causal, C::kBlockQ);
  const Head<const T> q_head(q, work.b, work.h), k_head(k, work.b, work.h),
      v_head(v, work.b, work.h);
  static_assert(C::kGroups == 1);  // two would have to wait for each other at the end of a step
  using Tiles = typename C::template Tiles<T>;
  FLASH_DYNAMIC_SHARED(Tiles, shared);
  Tiles* const smem = align_to_1024(shared);
  const Lane<C> lane;
  const auto Q = smem->Q.by_columns(threadIdx.x / 128 * 64);
  Rows<C> rows;

  copy_tile<C>(smem->Q, q_head, work.i0);
  for (int j0 = 0; j0 < work.some_see; j0 += C::kBlockK) {
    copy_tile<C>(smem->K[0], k_head, j0);
    copy_tile<C>(smem->V[0], v_head, j0);
    cp_async_commit();
    cp_async_wait<0>();
    fence_proxy_async();
    __syncthreads();
    Scores<C> S;
    start_QK<C>(S, Q, smem->K[0]);
    wgmma_wait<0>();
    if (j0 + C::kBlockK > work.all_see) mask_scores<C>(S, work.keys, causal, work.i0, j0, lane);
    softmax_step<C>(S, rows, scale);
    Weights<C> P;
    pack_weights<C, T>(P, S);
    start_PV<C>(rows, P, smem->V[0]);
    wgmma_wait<0>();  // of the whole warpgroup: nobody reads K and V any more
  }
  store<C>(rows, out, lse, work, scale, lane);
}

// ./lab tune: Config<D, 64|80|96|128|160|176|256, 1|2, 1, 0>
using Configs = Table<Config<64, 128, 1, 1, 0>, Config<128, 64, 1, 1, 0>, Config<256, 64, 1, 1, 0>>;

}  // namespace

FLASH_ENTER(registry, name) {
  enter(registry, name, why_not, []<class T>(const AttentionForward<T>& pass) {
    mma::run("wgmma", pass, Configs(), []<class C>(C) { return wgmma_kernel<T, C>; });
  });
}

}  // namespace flash::wgmma_rung
