// Rung 3: memory is read while the tensor cores compute.
//
// New: cp.async copies from device to shared memory, without passing through the registers. Shared
// memory holds K and V of kStages steps, and step n starts the copies for step n + kStages - 1, so
// that a step finds its tiles there.
//
// The bottleneck is the arithmetic around the products. In the count of rung 1, on an A100, a step
// has 8192 exponentials, at 16 a clock 512 clocks, and about 5 other operations for each score, at
// 64 a clock 640 clocks, beside the tensor cores' 1024. A warp does one after the other, so that
// only other warps can use the tensor cores meanwhile. So addresses count, too: while each of a
// thread's 16 copies computed its own address, and tested whether its row exists, this kernel took
// 4 to 5 % longer.
// Measured on an H200 (bfloat16, 16 heads of 128, 4096 keys): 344 TFLOP/s, with a causal mask 328;
// PyTorch's FlashAttention 2, which is built of the same instructions, 354 and 303. In Nsight
// Compute look at the share of clocks in which the tensor cores are busy, and at "wait" among the
// reasons for which warps wait: the result of an instruction just before.
#include "part3_flash_cuda/ladder/fragments.hpp"

namespace flash::pipelined {
namespace {

using namespace mma;

template <class T, int Rows, int Columns>
struct Tile {
  T numbers[Rows][Columns];

  __device__ __forceinline__ T* chunk(unsigned row, unsigned c) {
    return &numbers[row][(c ^ (row & 7)) * kChunk];
  }
};

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    pipelined_kernel(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                     TensorView<T, 4> out, TensorView<float, 3> lse, float scale, bool causal) {
  const AttentionShape shape{q.extent(0), q.extent(1), q.extent(2), k.extent(2), q.extent(3)};
  const Work work(shape, causal, C::kBlockQ);
  const Head<const T> q_head(q, work.b, work.h), k_head(k, work.b, work.h),
      v_head(v, work.b, work.h);
  static_assert(C::kStages >= 2);
  using Tiles =
      mma::Tiles<Tile<T, C::kBlockQ, C::kHeadDim>, Tile<T, C::kBlockK, C::kHeadDim>, C::kStages>;
  FLASH_DYNAMIC_SHARED(Tiles, smem);
  const Lane<C> lane;
  Rows<C> rows[C::kStrips];

  // Step n's K and V, a group of copies each; past the last step the groups are empty.
  const int steps = (work.some_see + C::kBlockK - 1) / C::kBlockK;
  const auto fetch = [&](int n) {
    if (n < steps) copy_chunks<C, C::kBlockK>(smem->K[n % C::kStages], k_head, n * C::kBlockK);
    cp_async_commit();
    if (n < steps) copy_chunks<C, C::kBlockK>(smem->V[n % C::kStages], v_head, n * C::kBlockK);
    cp_async_commit();
  };
  copy_chunks<C, C::kBlockQ>(smem->Q, q_head, work.i0);  // in the group of the first K
  for (int n = 0; n < C::kStages - 1; ++n) fetch(n);

  for (int n = 0; n < steps; ++n) {
    const int j0 = n * C::kBlockK;
    // All copies but the newest 2 kStages - 3 groups are done: Q and this step's K are here.
    cp_async_wait<2 * C::kStages - 3>();
    __syncthreads();  // those of all threads; and nobody reads step n - 1 any more
    fetch(n + C::kStages - 1);
    Scores<C> S[C::kStrips];
    multiply_QK<C, T>(S, smem->Q, smem->K[n % C::kStages], lane);
    if (j0 + C::kBlockK > work.all_see) mask_scores<C>(S, work.keys, causal, work.i0, j0, lane);
    softmax_step<C>(S, rows, scale);
    cp_async_wait<2 * C::kStages - 2>();  // this step's V
    __syncthreads();
    add_PV<C, T>(rows, S, smem->V[n % C::kStages], lane);
  }
  store<C>(rows, out, lse, work, scale, lane);
}

// ./lab tune: Config<D, 64|128, 32|64|96|128, 4|8, 2|3|4, 1|2, false|true>
using Configs = Table<Config<64, 128, 96, 4, 2, 2>, Config<128, 128, 64, 4, 2, 2, true>,
                      Config<256, 128, 64, 8, 2, 1>, Config<256, 64, 32, 4, 2, 2>>;

}  // namespace

FLASH_ENTER(registry, name) {
  enter(registry, name, why_not, []<class T>(const AttentionForward<T>& pass) {
    run("pipelined", pass, Configs(), []<class C>(C) { return pipelined_kernel<T, C>; });
  });
}

}  // namespace flash::pipelined
