// CUDA in ten small kernels: cuda.md explains each. The launches are given, at the end.
#include "common/checks.hpp"
#include "common/cuda/warp.hpp"
#include "part1_softmax_matmul/ten_kernels.hpp"

namespace flash {
namespace {

// BEGIN SOLUTION raise this to the number of the kernel that you write: the check runs kernels 1 to
//   kWritten
// STUB constexpr int kWritten = 0;
constexpr int kWritten = 10;
// END SOLUTION

constexpr int kThreads = 128;  // in a block, unless the launch says otherwise

// 1. There are as many threads as elements.
__global__ void index_of_a_thread(const float* x, float* y) {
  // BEGIN SOLUTION compute the index i of this thread in the grid; then y[i] = 2 * x[i] (2 lines)
  const int i = blockDim.x * blockIdx.x + threadIdx.x;
  y[i] = 2 * x[i];
  // END SOLUTION
}

// 2. The last block has more threads than there are elements left.
__global__ void bounds(const float* x, float* y, int n) {
  // BEGIN SOLUTION the same with y[i] = x[i] + 1, but only if there is an element i (2 lines)
  const int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
  // END SOLUTION
}

// 3. There are fewer threads than elements: a thread has several.
__global__ void grid_stride(const float* x, float* y, int n) {
  // BEGIN SOLUTION y[i] = x[i] * x[i] for each i of this thread. Its first i is its index in the
  //   grid. Each next i is larger by the number of threads in the grid (3 lines)
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = x[i] * x[i];
  // END SOLUTION
}

// 4. The threads of a block exchange values.
__global__ void reverse(const float* x, float* y) {
  __shared__ float tile[kThreads];
  const int t = threadIdx.x, first = blockIdx.x * kThreads;
  // BEGIN SOLUTION copy x[first + t] to the tile. Then y[first + t] gets an element that another
  //   thread has put into the tile: y has the block's elements in reverse order (3 lines)
  tile[t] = x[first + t];
  __syncthreads();
  y[first + t] = tile[kThreads - 1 - t];
  // END SOLUTION
}

// 5. A block adds 128 numbers: it makes 64 sums of two, then 32 of four, and so on.
__global__ void tree_sum(const float* x, float* y) {
  __shared__ float sum[kThreads];
  const int t = threadIdx.x;
  sum[t] = x[blockIdx.x * kThreads + t];
  // BEGIN SOLUTION in each step, the second half of the sums is added to the first half, one sum
  //   a thread. Thread 0 stores the sum that is left at the end in y[blockIdx.x] (5 lines)
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) sum[t] += sum[t + half];
  }
  if (t == 0) y[blockIdx.x] = sum[0];
  // END SOLUTION
}

// 6. A block of one warp adds up 32 numbers, without shared memory.
__global__ void shuffle_sum(const float* x, float* y) {
  const int lane = threadIdx.x;
  float sum = x[blockIdx.x * kWarpSize + lane];
  // BEGIN SOLUTION five steps, with the distances 16, 8, 4, 2 and 1: add the sum of the lane at
  //   this distance. Then lane 0 stores the sum in y[blockIdx.x] (3 lines)
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (lane == 0) y[blockIdx.x] = sum;
  // END SOLUTION
}

// 7. A block is one warp. It has a tile of 32 rows and 32 columns, which lie in memory row by row.
__global__ void coalesced(const float* x, float* y) {
  const int lane = threadIdx.x, tile = blockIdx.x * kWarpSize * kWarpSize;
  for (int step = 0; step < kWarpSize; ++step) {
    // BEGIN SOLUTION the line below is right, but slow: it gives each lane a row. Give each lane a
    //   column (1 line)
    // STUB const int i = tile + kWarpSize * lane + step;
    const int i = tile + kWarpSize * step + lane;
    // END SOLUTION
    y[i] = -x[i];
  }
}

// 8. One warp transposes a tile in shared memory: it loads rows of x and stores rows of y.
__global__ void transpose(const float* x, float* y) {
  // BEGIN SOLUTION this width leads to bank conflicts: choose a better one (1 line)
  // STUB constexpr int kWidth = kWarpSize;
  constexpr int kWidth = kWarpSize + 1;
  // END SOLUTION
  __shared__ float tile[kWarpSize][kWidth];
  const int lane = threadIdx.x;
  // BEGIN SOLUTION for each r, copy row r of x, 32 elements, to tile[r]; then, for each r, copy
  //   column r of the tile to row r of y. A lane copies one element of a row (about 4 lines)
  for (int r = 0; r < kWarpSize; ++r) tile[r][lane] = x[kWarpSize * r + lane];
  __syncwarp();
  for (int r = 0; r < kWarpSize; ++r) y[kWarpSize * r + lane] = tile[lane][r];
  // END SOLUTION
}

// 9. A block of four warps adds up one row.
__global__ void row_sum(const float* x, float* y, int columns) {
  __shared__ float sum_of_warp[kThreads / kWarpSize];
  const int warp = threadIdx.x / kWarpSize, lane = threadIdx.x % kWarpSize;
  const float* const row = x + blockIdx.x * columns;
  // BEGIN SOLUTION add up this thread's columns: threadIdx.x, and every kThreads-th after it. Then
  //   warp_sum(), which does what kernel 6 does, adds up the sums of a warp. Lane 0 of each warp
  //   stores the result in sum_of_warp; thread 0 adds these four and stores y[blockIdx.x] (about 10
  //   lines)
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
  // BEGIN SOLUTION read four elements of x at once, as a float4; the first is x[4 * group]. Multiply
  //   each by 3, and write the four to y at once (about 4 lines)
  float4 four = reinterpret_cast<const float4*>(x)[group];
  four = {3 * four.x, 3 * four.y, 3 * four.z, 3 * four.w};
  reinterpret_cast<float4*>(y)[group] = four;
  // END SOLUTION
}

// As many blocks of `size` threads as n threads need.
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
