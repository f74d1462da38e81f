// CUDA in ten small kernels: cuda.md has the story of each. The launches are given, at the end.
#include "common/checks.hpp"
#include "common/cuda/warp.hpp"
#include "part1_softmax_matmul/ten_kernels.hpp"

namespace flash {
namespace {

// BEGIN SOLUTION count here how many kernels you have written, from the first on: the check runs
//   only these
// STUB constexpr int kWritten = 0;
constexpr int kWritten = 10;
// END SOLUTION

constexpr int kThreads = 128;  // of a block, where nothing else is said

// 1. As many threads as elements.
__global__ void index_of_a_thread(const float* x, float* y) {
  // BEGIN SOLUTION the index i of this thread in the grid; y[i] = 2 x[i] (2 lines)
  const int i = blockDim.x * blockIdx.x + threadIdx.x;
  y[i] = 2 * x[i];
  // END SOLUTION
}

// 2. The last block has more threads than there are elements left.
__global__ void bounds(const float* x, float* y, int n) {
  // BEGIN SOLUTION the same with y[i] = x[i] + 1, where there is an element i (2 lines)
  const int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
  // END SOLUTION
}

// 3. Fewer threads than elements: a thread has several.
__global__ void grid_stride(const float* x, float* y, int n) {
  // BEGIN SOLUTION y[i] = x[i] * x[i] for the thread's first i, and then for each i that lies as
  //   many threads further on as the grid has (3 lines)
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = x[i] * x[i];
  // END SOLUTION
}

// 4. Threads of a block exchange values.
__global__ void reverse(const float* x, float* y) {
  __shared__ float tile[kThreads];
  const int t = threadIdx.x, first = blockIdx.x * kThreads;
  // BEGIN SOLUTION x[first + t] into the tile; then into y[first + t] what another thread has
  //   brought, so that the block's elements are in the reverse order (3 lines)
  tile[t] = x[first + t];
  __syncthreads();
  y[first + t] = tile[kThreads - 1 - t];
  // END SOLUTION
}

// 5. 128 numbers, then 64 sums of two, 32 of four, ...
__global__ void tree_sum(const float* x, float* y) {
  __shared__ float sum[kThreads];
  const int t = threadIdx.x;
  sum[t] = x[blockIdx.x * kThreads + t];
  // BEGIN SOLUTION while there is more than one sum: the threads of the first half each add a sum
  //   of the second half to theirs. Thread 0 stores the last one in y[blockIdx.x] (5 lines)
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) sum[t] += sum[t + half];
  }
  if (t == 0) y[blockIdx.x] = sum[0];
  // END SOLUTION
}

// 6. The same tree in a block of one warp, without shared memory.
__global__ void shuffle_sum(const float* x, float* y) {
  const int lane = threadIdx.x;
  float sum = x[blockIdx.x * kWarpSize + lane];
  // BEGIN SOLUTION five steps, at distances of 16, 8, 4, 2 and 1 lanes: add the sum of the lane
  //   there. Lane 0 stores the sum in y[blockIdx.x] (3 lines)
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (lane == 0) y[blockIdx.x] = sum;
  // END SOLUTION
}

// 7. A block is one warp. It has a tile of 32 rows and 32 columns, which lie in memory row by row.
__global__ void coalesced(const float* x, float* y) {
  const int lane = threadIdx.x, tile = blockIdx.x * kWarpSize * kWarpSize;
  for (int step = 0; step < kWarpSize; ++step) {
    // BEGIN SOLUTION the line below is right, but slow: it gives a lane one row. Give it one column
    //   (1 line)
    // STUB const int i = tile + kWarpSize * lane + step;
    const int i = tile + kWarpSize * step + lane;
    // END SOLUTION
    y[i] = -x[i];
  }
}

// 8. One warp transposes a tile in shared memory: it loads rows of x and stores rows of y.
__global__ void transpose(const float* x, float* y) {
  // BEGIN SOLUTION the report will complain of this width: find a better one (1 line)
  // STUB constexpr int kWidth = kWarpSize;
  constexpr int kWidth = kWarpSize + 1;
  // END SOLUTION
  __shared__ float tile[kWarpSize][kWidth];
  const int lane = threadIdx.x;
  // BEGIN SOLUTION row r of x, 32 elements, into tile[r], for each r; then column r of the tile
  //   into row r of y, for each r; a lane has one element of a row (about 4 lines)
  for (int r = 0; r < kWarpSize; ++r) tile[r][lane] = x[kWarpSize * r + lane];
  __syncwarp();
  for (int r = 0; r < kWarpSize; ++r) y[kWarpSize * r + lane] = tile[lane][r];
  // END SOLUTION
}

// 9. A block of four warps has one row.
__global__ void row_sum(const float* x, float* y, int columns) {
  __shared__ float sum_of_warp[kThreads / kWarpSize];
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const float* const row = x + blockIdx.x * columns;
  // BEGIN SOLUTION this thread's sum of every kThreads-th column; the warp's sum, by warp_sum(),
  //   which is kernel 6; lane 0 of each warp stores it in sum_of_warp; thread 0 of the block adds
  //   these and stores the sum in y[blockIdx.x] (about 10 lines)
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += kThreads) sum += row[c];
  sum = warp_sum(sum);
  if (lane == 0) sum_of_warp[warp] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kThreads / kWarpSize; ++w) sum += sum_of_warp[w];
    y[blockIdx.x] = sum;
  }
  // END SOLUTION
}

// 10. A thread has four neighbouring elements.
__global__ void four_at_a_time(const float* x, float* y, int n) {
  const int group = blockIdx.x * blockDim.x + threadIdx.x;
  if (group >= n / 4) return;
  // BEGIN SOLUTION the four elements from 4 * group on: read them from x at once, as a float4,
  //   multiply each by 3, and write them to y at once (3 lines)
  float4 four = reinterpret_cast<const float4*>(x)[group];
  four = {3 * four.x, 3 * four.y, 3 * four.z, 3 * four.w};
  reinterpret_cast<float4*>(y)[group] = four;
  // END SOLUTION
}

// How many blocks of `size` threads it takes for n of them.
dim3 blocks_for(int n, int size = kThreads) { return grid_size((n + size - 1) / size); }

}  // namespace

void run_small_kernel(int number, TensorView<const float, 1> x_view, TensorView<float, 1> y_view) {
  check_between("number", number, 1, 10);
  if (number > kWritten) throw NotYetImplemented("part1.ten_kernels");
  const float* const x = x_view.data();
  float* const y = y_view.data();
  const int n = static_cast<int>(x_view.extent(0)), rows = static_cast<int>(y_view.extent(0));
  constexpr int kTile = kWarpSize * kWarpSize;
  switch (number) {
    case 1: return launch("index_of_a_thread", index_of_a_thread, {blocks_for(n), kThreads}, x, y);
    case 2: return launch("bounds", bounds, {blocks_for(n), kThreads}, x, y, n);
    case 3: return launch("grid_stride", grid_stride, {4, kThreads}, x, y, n);
    case 4: return launch("reverse", reverse, {blocks_for(n), kThreads}, x, y);
    case 5: return launch("tree_sum", tree_sum, {blocks_for(n), kThreads}, x, y);
    case 6: return launch("shuffle_sum", shuffle_sum, {blocks_for(n, kWarpSize), kWarpSize}, x, y);
    case 7: return launch("coalesced", coalesced, {blocks_for(n, kTile), kWarpSize}, x, y);
    case 8: return launch("transpose", transpose, {1, kWarpSize}, x, y);
    case 9: return launch("row_sum", row_sum, {grid_size(rows), kThreads}, x, y, n / rows);
    case 10:
      return launch("four_at_a_time", four_at_a_time, {blocks_for(n / 4), kThreads}, x, y, n);
  }
}

}  // namespace flash

// The tests find your functions by this line: leave it the last one.
FLASH_TASK(TenKernelsTask)
