// Rung 2: tiles without bank conflicts.
//
// New: chunk c (16 bytes) of row r is stored at position c ^ (r % 8) of the row. The 8 rows that
// ldmatrix reads together, at the same c, then lie in 8 different groups of 4 banks and take 1
// clock: in the count of rung 1 the 4 warps' ldmatrix take 640 clocks, and writing K and V takes
// 128, beside the tensor cores' 1024.
//
// The bottleneck is waiting: in each step the thread block loads K and V from device memory, which
// takes several hundred clocks before the first bytes come, and its tensor cores do nothing
// meanwhile. Only other thread blocks on the multiprocessor can use them, if there are any. (A
// tensor core of an H200 takes 4 clocks for an mma.sync, 512 in this count. There shared memory
// stays the limit.)
// Measured on an H200 (bfloat16, 16 heads of 128, 4096 keys): 161 TFLOP/s. Nsight Compute: the
// tensor cores are busy 24 % of the time; warps wait at "long scoreboard", which is for device
// memory.
#include "part3_flash_cuda/ladder/fragments.hpp"

namespace flash::swizzled {
namespace {

using namespace mma;

template <class T, int Rows, int Columns>
struct Tile {
  static constexpr int kRows = Rows;
  T numbers[Rows][Columns];

  __device__ __forceinline__ T* chunk(unsigned row, unsigned c) {
    return &numbers[row][(c ^ (row & 7)) * kChunk];
  }
};

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    swizzled_kernel(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                    TensorView<T, 4> out, TensorView<float, 3> lse, float scale, bool causal) {
  const AttentionShape shape{q.extent(0), q.extent(1), q.extent(2), k.extent(2), q.extent(3)};
  const Work work(shape, causal, C::kBlockQ);
  const Head<const T> q_head(q, work.b, work.h), k_head(k, work.b, work.h),
      v_head(v, work.b, work.h);
  using Tiles =
      mma::Tiles<Tile<T, C::kBlockQ, C::kHeadDim>, Tile<T, C::kBlockK, C::kHeadDim>, C::kStages>;
  FLASH_DYNAMIC_SHARED(Tiles, smem);
  const Lane<C> lane;
  Rows<C> rows[C::kStrips];

  load_chunks<C>(smem->Q, q_head, work.i0);
  for (int j0 = 0; j0 < work.some_see; j0 += C::kBlockK) {
    __syncthreads();  // nobody reads the tiles of the keys before any more
    load_chunks<C>(smem->K[0], k_head, j0);
    load_chunks<C>(smem->V[0], v_head, j0);
    __syncthreads();
    Scores<C> S[C::kStrips];
    multiply_QK<C, T>(S, smem->Q, smem->K[0], lane);
    if (j0 + C::kBlockK > work.all_see) mask_scores<C>(S, work.keys, causal, work.i0, j0, lane);
    softmax_step<C>(S, rows, scale);
    add_PV<C, T>(rows, S, smem->V[0], lane);
  }
  store<C>(rows, out, lse, work, scale, lane);
}

// ./lab tune: Config<D, 64|128, 32|64|96|128, 4|8, 1, 1|2|3>
using Configs =
    Table<Config<64, 128, 64, 4, 1, 2>, Config<128, 64, 64, 4, 1, 2>, Config<256, 64, 32, 4, 1, 2>>;

}  // namespace

FLASH_ENTER(registry, name) {
  enter(registry, name, why_not, []<class T>(const AttentionForward<T>& pass) {
    run("swizzled", pass, Configs(), []<class C>(C) { return swizzled_kernel<T, C>; });
  });
}

}  // namespace flash::swizzled
