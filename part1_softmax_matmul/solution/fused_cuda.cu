// Task 1.A on the GPU: softmax(X) V with nothing quadratic in device memory.
//
// A thread block owns a batch index, BLOCK_1 rows and up to kFusedChunk columns of the output. It
// streams X and V past them in tiles of BLOCK_2 keys. Inside the block:
// - A warp owns kRowsPerWarp rows. It computes their weights P, which no other warp reads. All
//   warps read the V tile in shared memory. A barrier right before the product completes P and V;
//   another one keeps the next tile from coming too early.
// - In the softmax, kLanesPerRow lanes share a row: its m and l are one register each, and two
//   shuffles combine those of a row.
// - In the product, a lane owns the same kColumnsPerLane columns of each of its warp's rows: 8 x 8
//   accumulators in registers. Each value read from shared memory serves 8 multiply-adds, so that
//   these limit the speed, and not the reads.
#include "common/checks.hpp"
#include "common/cuda/warp.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {
namespace {

constexpr int kRowsPerWarp = 8;
constexpr int kLanesPerRow = kWarpSize / kRowsPerWarp;
constexpr int kColumnsPerLane = kFusedChunk / kWarpSize;
constexpr int kColumnsPerVector = 4;  // a lane reads shared memory 16 bytes at a time
static_assert(kColumnsPerLane == 2 * kColumnsPerVector && kRowsPerWarp == 2 * kColumnsPerVector);

__host__ __device__ constexpr int warps_per_block(int block_1) { return block_1 / kRowsPerWarp; }

// Which column of the chunk is number `n` of `lane`. Neighbouring lanes read neighbouring 16 bytes,
// so that a warp reads 512 bytes in a row, without bank conflicts: columns 4 lane .. 4 lane + 3,
// and the same 128 further on.
__device__ int column_of(int lane, int n) {
  return (n / kColumnsPerVector) * kWarpSize * kColumnsPerVector + lane * kColumnsPerVector +
         n % kColumnsPerVector;
}

// Over the kLanesPerRow neighbouring lanes that share a row; each of them gets the result.
__device__ float row_max(float value) { return warp_max<kLanesPerRow>(value); }
__device__ float row_sum(float value) { return warp_sum<kLanesPerRow>(value); }

// The value that the lanes of row `r` of the warp have, in every lane.
__device__ float from_row(float value, int r) {
  return __shfl_sync(kAllLanes, value, r * kLanesPerRow);
}

// Shared memory of a block: the V tile, then each warp's P tile, key by key so that a key's 8
// weights are contiguous.
template <int BLOCK_1, int BLOCK_2>
struct SharedLayout {
  static constexpr int kV = BLOCK_2 * kFusedChunk;
  static constexpr int kPOfWarp = BLOCK_2 * kRowsPerWarp;
  static constexpr std::size_t kBytes = sizeof(float) * (kV + warps_per_block(BLOCK_1) * kPOfWarp);
};

// The second launch bound asks the compiler for registers so few (128) that 512 threads fit on a
// multiprocessor: 8, 4 or 2 blocks, of which one can load while another computes.
template <int BLOCK_1, int BLOCK_2>
__global__ void __launch_bounds__(warps_per_block(BLOCK_1) * kWarpSize,
                                  512 / (warps_per_block(BLOCK_1) * kWarpSize))
    fused_softmax_matmul_kernel(TensorView<const float, 3> x, TensorView<const float, 3> v,
                                TensorView<float, 3> out, int row_blocks, int chunks) {
  using Layout = SharedLayout<BLOCK_1, BLOCK_2>;
  constexpr int kThreads = warps_per_block(BLOCK_1) * kWarpSize;
  const Index d1 = x.extent(1), d2 = x.extent(2), d3 = v.extent(2);
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;

  FLASH_DYNAMIC_SHARED(float, shared);
  float* const V_smem = shared;  // [BLOCK_2][kFusedChunk]
  // [BLOCK_2][kRowsPerWarp], this warp's own
  float* const P_smem = shared + Layout::kV + warp * Layout::kPOfWarp;

  // Where this block stands. Chunks of the same rows are neighbours, so that the second finds X in
  // the L2 cache.
  const Index chunk = blockIdx.x % chunks;
  const Index row_block = blockIdx.x / chunks % row_blocks;
  const Index b = blockIdx.x / chunks / row_blocks;
  const Index row0 = row_block * BLOCK_1 + warp * kRowsPerWarp;  // this warp's first row
  const Index column0 = chunk * kFusedChunk;                     // this block's first column

  // In the softmax this lane works for one row, and takes every kLanesPerRow-th of its keys.
  const Index softmax_row = row0 + lane / kLanesPerRow;
  const int first_key = lane % kLanesPerRow;
  float m = -INFINITY;  // of softmax_row: the largest score so far, the same in its four lanes
  float l = 0;          // sum of exp(score - m) over the keys that *this lane* saw

  float o[kRowsPerWarp][kColumnsPerLane] =
      {};  // of each row of the warp: sum of exp(score - m) * V

  for (Index key0 = 0; key0 < d2; key0 += BLOCK_2) {
    // BEGIN SOLUTION load the V tile: V_smem[j * kFusedChunk + c] = v(b, key0 + j, column0 + c),
    //   neighbouring threads on neighbouring columns, and 0 past the last key and the last column;
    //   no thread may still be reading the old tile (about 10 lines)
    __syncthreads();
    for (int c = threadIdx.x; c < kFusedChunk; c += kThreads) {
      FLASH_UNROLL_BY(8)  // eight loads in flight
      for (int j = 0; j < BLOCK_2; ++j) {
        const bool inside = key0 + j < d2 && column0 + c < d3;
        V_smem[j * kFusedChunk + c] = inside ? v(b, key0 + j, column0 + c) : 0;
      }
    }
    // END SOLUTION

    constexpr int kScores = BLOCK_2 / kLanesPerRow;
    float score[kScores] = {};  // of keys first_key, first_key + kLanesPerRow, ... of the tile
    // BEGIN SOLUTION load this lane's scores of softmax_row, and -INFINITY past the last key and the
    //   last row (about 5 lines)
    FLASH_UNROLL
    for (int s = 0; s < kScores; ++s) {
      const Index key = key0 + s * kLanesPerRow + first_key;
      score[s] = key < d2 && softmax_row < d1 ? x(b, softmax_row, key) : -INFINITY;
    }
    // END SOLUTION

    float reference = 0;  // what the weights subtract from the scores
    float alpha = 1;      // the factor by which what was summed so far shrinks
    // BEGIN SOLUTION the new running maximum of the row, the same in all its lanes, and with it
    //   reference and alpha. A row of which only -inf was seen must not give exp(-inf - -inf)
    //   (about 7 lines)
    float m_new = m;
    FLASH_UNROLL
    for (int s = 0; s < kScores; ++s) m_new = fmaxf(m_new, score[s]);
    m_new = row_max(m_new);
    reference = m_new == -INFINITY ? 0 : m_new;
    alpha = exp2f((m - reference) * kLog2E);
    m = m_new;
    // END SOLUTION

    // BEGIN SOLUTION the weights: exp(score - reference) to P_smem[j * kRowsPerWarp + r], where j is the
    //   key's place in the tile and r the row's place in the warp; l moves to the new maximum and
    //   takes them in (about 7 lines; exp(s) = exp2f(s * kLog2E))
    l *= alpha;
    FLASH_UNROLL
    for (int s = 0; s < kScores; ++s) {
      const float weight = exp2f((score[s] - reference) * kLog2E);
      l += weight;
      P_smem[(s * kLanesPerRow + first_key) * kRowsPerWarp + lane / kLanesPerRow] = weight;
    }
    // END SOLUTION

    // BEGIN SOLUTION bring o to the new maximum: each row's alpha is in that row's lanes, and
    //   from_row() fetches it (about 6 lines)
    FLASH_UNROLL
    for (int r = 0; r < kRowsPerWarp; ++r) {
      const float alpha_r = from_row(alpha, r);
      FLASH_UNROLL
      for (int n = 0; n < kColumnsPerLane; ++n) o[r][n] *= alpha_r;
    }
    // END SOLUTION

    // BEGIN SOLUTION O += P V: wait for the tile, then for each key read its 8 weights and this
    //   lane's 8 values from shared memory, 16 bytes at a time, and multiply each by each (about 15
    //   lines)
    __syncthreads();
    FLASH_UNROLL_BY(2)  // by 4 spills
    for (int j = 0; j < BLOCK_2; ++j) {
      alignas(16) float P[kRowsPerWarp], V[kColumnsPerLane];
      FLASH_UNROLL
      for (int r = 0; r < kRowsPerWarp; r += kColumnsPerVector)
        *reinterpret_cast<float4*>(&P[r]) =
            *reinterpret_cast<const float4*>(&P_smem[j * kRowsPerWarp + r]);
      FLASH_UNROLL
      for (int n = 0; n < kColumnsPerLane; n += kColumnsPerVector)
        *reinterpret_cast<float4*>(&V[n]) =
            *reinterpret_cast<const float4*>(&V_smem[j * kFusedChunk + column_of(lane, n)]);
      FLASH_UNROLL
      for (int r = 0; r < kRowsPerWarp; ++r) {
        FLASH_UNROLL
        for (int n = 0; n < kColumnsPerLane; ++n) o[r][n] += P[r] * V[n];
      }
    }
    // END SOLUTION
  }

  // BEGIN SOLUTION store: a row's whole l is the sum over its lanes; out = o / l, and 0 where no
  //   key was visible; only rows below d1 and columns below d3 exist (about 11 lines)
  l = row_sum(l);
  const float scale = l == 0 ? 0 : 1 / l;
  FLASH_UNROLL
  for (int r = 0; r < kRowsPerWarp; ++r) {
    const float scale_r = from_row(scale, r);
    FLASH_UNROLL
    for (int n = 0; n < kColumnsPerLane; ++n) {
      const Index column = column0 + column_of(lane, n);
      if (row0 + r < d1 && column < d3) out(b, row0 + r, column) = o[r][n] * scale_r;
    }
  }
  // END SOLUTION
}

template <int BLOCK_1, int BLOCK_2>
void launch_fused(const SoftmaxMatmul<float>& pass) {
  // BEGIN SOLUTION the launch: one thread block for each (batch index, block of rows, chunk
  //   of columns), with SharedLayout<BLOCK_1, BLOCK_2>::kBytes of shared memory; grid_size() checks
  //   the number of blocks (about 9 lines)
  // STUB throw NotYetImplemented("part1.fused_cuda");
  const auto [batch, d1, d2, d3] = pass.shape();
  const Index row_blocks = (d1 + BLOCK_1 - 1) / BLOCK_1;
  const Index chunks = (d3 + kFusedChunk - 1) / kFusedChunk;
  launch("fused_softmax_matmul", fused_softmax_matmul_kernel<BLOCK_1, BLOCK_2>,
         {.grid = grid_size(batch * row_blocks * chunks),
          .block = static_cast<unsigned>(warps_per_block(BLOCK_1) * kWarpSize),
          .shared_bytes = SharedLayout<BLOCK_1, BLOCK_2>::kBytes,
          .stream = pass.stream},
         pass.x, pass.v, pass.out, static_cast<int>(row_blocks), static_cast<int>(chunks));
  // END SOLUTION
}

[[noreturn]] void refuse(const char* argument, Index block) {
  throw Unsupported(std::string(argument) + " is " + std::to_string(block) +
                    "; the CUDA kernel is compiled for 16, 32 and 64");
}

template <int BLOCK_1>
void dispatch_block_2(const SoftmaxMatmul<float>& pass, Index block_2) {
  switch (block_2) {
    case 16: return launch_fused<BLOCK_1, 16>(pass);
    case 32: return launch_fused<BLOCK_1, 32>(pass);
    case 64: return launch_fused<BLOCK_1, 64>(pass);
    default: refuse("block_2", block_2);
  }
}

}  // namespace

void fused_softmax_matmul_cuda(const SoftmaxMatmul<float>& pass,
                               const SoftmaxMatmulBlocks& blocks) {
  (void)check_softmax_matmul(pass);
  check_at_least("block_1", blocks.block_1, 1);
  check_at_least("block_2", blocks.block_2, 1);
  switch (blocks.block_1) {
    case 16: return dispatch_block_2<16>(pass, blocks.block_2);
    case 32: return dispatch_block_2<32>(pass, blocks.block_2);
    case 64: return dispatch_block_2<64>(pass, blocks.block_2);
    default: refuse("block_1", blocks.block_1);
  }
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(FusedCudaTask)
