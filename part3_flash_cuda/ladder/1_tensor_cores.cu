// Rung 1: both products on tensor cores, for inputs of 16 bits.
//
// New, compared with the solution: mma.sync multiplies 16 x 16 by 16 x 8 numbers in one instruction
// of a warp. Tiles hold the 16-bit numbers as they come, and ldmatrix gives each lane the elements
// that mma.sync expects of it. S, P and O stay in registers: the two neighbouring scores that a
// lane gets from Q K^T are the two that it has to give to P V. P is rounded to 16 bits there; sums
// are float32. Shared memory holds Q, K and V in half the bytes, and no P.
//
// The bottleneck, counted for an A100 and a step of a thread block of 4 warps (128 queries, 64
// keys, head_dim 64): a warp has 128 mma.sync of 8 clocks, on one of the 4 tensor cores 1024
// clocks. It has 40 ldmatrix of 4 matrices. The 8 rows of a matrix lie a multiple of 128 bytes
// apart, so they begin in the same bank: a matrix takes 8 clocks and not 1, the warp's 40 ldmatrix
// take 1280. The 4 warps share one shared memory: 5120 clocks, 5 times as long as the tensor cores
// work.
// Measured on an H200 (bfloat16, 16 heads of 128, 4096 keys): 44 TFLOP/s. Nsight Compute: shared
// memory is busy 86 % of the time, the tensor cores 7 %; warps wait at "short scoreboard", which is
// for what they load from there.
#include "part3_flash_cuda/ladder/fragments.hpp"

namespace flash::tensor_cores {
namespace {

using namespace mma;

template <class T, int Rows, int Columns>
struct Tile {
  static constexpr int kRows = Rows;
  T numbers[Rows][Columns];

  __device__ __forceinline__ T* chunk(unsigned row, unsigned c) {
    return &numbers[row][c * kChunk];
  }
};

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    tensor_cores_kernel(TensorView<const T, 4> q, TensorView<const T, 4> k,
                        TensorView<const T, 4> v, TensorView<T, 4> out, TensorView<float, 3> lse,
                        float scale, bool causal) {
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
    run("tensor_cores", pass, Configs(), []<class C>(C) { return tensor_cores_kernel<T, C>; });
  });
}

}  // namespace flash::tensor_cores
