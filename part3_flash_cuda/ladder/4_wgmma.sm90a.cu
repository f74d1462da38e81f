// Step 4 of the ladder: wgmma, the matrix instruction of Hopper.
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

// Copies rows row0 to row0 + kRows - 1 of a head; zeros where exists is none.
template <class C, int kRows, class T>
__device__ __forceinline__ void copy_tile(T* tile, const Head<const T>& x, int row0) {
  constexpr int kChunks = C::kHeadDim / kChunk, kStep = C::kThreads / kChunks;
  const int c = threadIdx.x % kChunks;
  FLASH_UNROLL
  for (int step = 0; step < kRows / kStep; ++step) {
    const int row = threadIdx.x / kChunks + step * kStep;
    const bool exists = row0 + row < x.rows && c * kChunk < x.columns;
    const Index place = exists ? (row0 + row) * x.row_stride + c * kChunk : 0;
    cp_async_16(chunk_of<kRows>(tile, row, c), x.data + place, exists ? 16 : 0);
  }
}

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads)
    wgmma_kernel(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                 TensorView<T, 4> out, TensorView<float, 3> lse, float scale, bool causal) {
  const AttentionShape shape{q.extent(0), q.extent(1), q.extent(2), k.extent(2), q.extent(3)};
  const Work work(shape, causal, C::kBlockQ);
  const Head<const T> q_head(q, work.b, work.h), k_head(k, work.b, work.h),
      v_head(v, work.b, work.h);
  static_assert(C::kGroups == 1);  // two would have to wait for each other at the end of a step
  FLASH_DYNAMIC_SHARED(T, shared);
  T* const Q_smem = align_to_1024(shared);
  T* const K_smem = Q_smem + C::kQSize;
  T* const V_smem = K_smem + C::kKSize;
  const Lane<C> me;
  const MatrixDescriptor Q = rows_of(Q_smem + threadIdx.x / 128 * 64 * 64);
  Rows<C> rows;

  copy_tile<C, C::kBlockQ>(Q_smem, q_head, work.i0);
  for (int j0 = 0; j0 < work.some_see; j0 += C::kBlockK) {
    copy_tile<C, C::kBlockK>(K_smem, k_head, j0);
    copy_tile<C, C::kBlockK>(V_smem, v_head, j0);
    cp_async_commit();
    cp_async_wait<0>();
    fence_proxy_async();
    __syncthreads();
    Scores<C> S;
    start_QK<C, T>(S, Q, rows_of(K_smem));
    wgmma_wait<0>();
    if (j0 + C::kBlockK > work.all_see) mask_scores<C>(S, work.keys, causal, work.i0, j0, me);
    softmax_step<C>(S, rows, scale);
    Weights<C> P;
    pack_weights<C, T>(P, S);
    start_PV<C, T>(rows, P, columns_of<C>(V_smem));
    wgmma_wait<0>();  // of the whole warpgroup: nobody reads K and V any more
  }
  store<C>(rows, out, lse, work, scale, me);
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
