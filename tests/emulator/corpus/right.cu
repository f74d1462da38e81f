// Right kernels, which must not be reported; their results are compared.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

RIGHT(reverse_tile, ({2, 64}, IS(i / 64 * 64 + 63 - i % 64), counting(128), result(128)),
      const float* x, float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
}

// Two buffers, one barrier a tile.
RIGHT(double_buffer, ({1, 64}, IS(319 * 320 / 2), counting(320), result(64), 5), const float* x,
      float* out, int tiles) {
  __shared__ float buffer[2][64];
  float sum = 0;
  for (int t = 0; t < tiles; ++t) {
    buffer[t % 2][threadIdx.x] = x[t * 64 + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 64; ++j) sum += buffer[t % 2][j];
  }
  out[threadIdx.x] = sum;
}

// With __syncwarp(), since lanes do not run in lockstep.
RIGHT(syncwarp_reduction, ({1, 128}, IS(496 + 1024 * i), counting(128), result(4)), const float* x,
      float* out) {
  __shared__ float sums[4][32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  sums[warp][lane] = x[threadIdx.x];
  __syncwarp();
  for (unsigned distance = 16; distance > 0; distance /= 2) {
    const float other = lane < distance ? sums[warp][lane + distance] : 0;
    __syncwarp();
    if (lane < distance) sums[warp][lane] += other;
    __syncwarp();
  }
  if (lane == 0) out[warp] = sums[warp][0];
}

// The halves of a warp diverge, each with its mask.
RIGHT(half_warps, ({1, 32}, IS(i / 16 * 16 + (i + (i < 16 ? 3 : 5)) % 16), result(32)),
      float* out) {
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
  float value = static_cast<float>(threadIdx.x);
  const int turns = threadIdx.x < 16 ? 3 : 5;
  for (int i = 0; i < turns; ++i)
    value = __shfl_sync(mask, value, static_cast<int>((threadIdx.x & 16) + (threadIdx.x + 1) % 16));
  out[threadIdx.x] = value;
}

// The last warp has 16 lanes.
RIGHT(partial_warp_with_mask, ({1, 48}, IS(i == 0 ? 32 : 16), result(2)), float* out) {
  const unsigned lanes = threadIdx.x < 32 ? 32 : 16;
  const unsigned mask = lanes == 32 ? kAllLanes : 0xffffu;
  float sum = 1;
  for (unsigned distance = lanes / 2; distance > 0; distance /= 2)
    sum += __shfl_down_sync(mask, sum, distance);
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = sum;
}

// A whole warp leaves; the others use warp operations only.
RIGHT(warps_leave, ({1, 128}, IS(496 + 1024 * i), counting(96), result(3), 3), const float* x,
      float* out, int rows) {
  const int row = static_cast<int>(threadIdx.x / 32);
  if (row >= rows) return;
  float sum = x[row * 32 + threadIdx.x % 32];
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (threadIdx.x % 32 == 0) out[row] = sum;
}

RIGHT(atomic_histogram,
      ({4, 64},
       IS(i == 0 || i == 4 ? 64
          : i == 1         ? 128
                           : 0),
       counting(256), result_from_zeros(8)),
      const int* keys, int* counts) {
  __shared__ int local[8];
  if (threadIdx.x < 8) local[threadIdx.x] = 0;
  __syncthreads();
  const int key = keys[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(&local[key * key % 8], 1);
  __syncthreads();
  if (threadIdx.x < 8) atomicAdd(&counts[threadIdx.x], local[threadIdx.x]);
}

// The last block to finish adds up all partial sums: a fence before the counter.
RIGHT(last_block_sums, ({7, 32}, IS(7 * 32), unwritten(7), zeros(1), result(1)), float* partial,
      unsigned* count, float* out) {
  __shared__ bool is_last;
  __shared__ float sums[32];
  sums[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int i = 0; i < 32; ++i) sum += sums[i];
    partial[blockIdx.x] = sum;
    __threadfence();
    is_last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last && threadIdx.x == 0) {
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];
    *out = sum;
  }
}

// The same where each thread's fence is before the barrier.
RIGHT(each_thread_has_a_fence, ({7, 64}, IS(7 * 64), unwritten(7 * 64), zeros(1), result(1)),
      float* partial, unsigned* count, float* out) {
  partial[64 * blockIdx.x + threadIdx.x] = 1;
  __threadfence();
  __syncthreads();
  if (threadIdx.x > 0 || atomicAdd(count, 1u) < gridDim.x - 1) return;
  float sum = 0;
  for (int i = 0; i < 7 * 64; ++i) sum += partial[i];
  *out = sum;
}

// One warp after the other takes the lock, and adds to a plain variable behind it.
RIGHT(spin_lock, ({3, 256}, IS(24), zeros(1), result_from_zeros(1)), int* lock, float* sum) {
  if (threadIdx.x % 32 == 0) {
    while (atomicCAS(lock, 0, 1) != 0) __nanosleep(20);
    sum[0] += 1;
    __threadfence();
    atomicExch(lock, 0);
  }
}

// The loop of CUDA's manual for an atomic operation that CUDA lacks reads plainly first.
__device__ void atomic_max(float* address, float value) {
  int* const bits = reinterpret_cast<int*>(address);
  int old = *bits, compared;
  do {
    compared = old;
    old = atomicCAS(bits, compared, __float_as_int(fmaxf(value, __int_as_float(compared))));
  } while (old != compared);
}
RIGHT(largest_by_comparing, ({2, 64}, IS(127), counting(128), result_from_zeros(1)), const float* x,
      float* out) {
  atomic_max(out, x[blockIdx.x * blockDim.x + threadIdx.x]);
}

// Lane 0 of the second warp waits, by an atomic operation alone, for what the first warp has
// written. Each warp has a __syncwarp() between its other lanes and its lane 0.
RIGHT(published_by_a_flag, ({1, 64}, IS(31 - i), zeros(1), unwritten(32), result(32)), int* flag,
      float* data, float* out) {
  if (threadIdx.x < 32) {
    data[threadIdx.x] = static_cast<float>(threadIdx.x);
    __syncwarp();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicExch(flag, 1);
    }
  } else {
    if (threadIdx.x == 32)
      while (atomicAdd(flag, 0) == 0) {
      }
    __syncwarp();
    out[threadIdx.x - 32] = data[63 - threadIdx.x];
  }
}

// Neighbouring 2-byte and 1-byte elements belong to different threads.
RIGHT(small_elements, ({1, 64}, IS(i), result(64), result(64)), unsigned char* bytes,
      unsigned short* shorts) {
  __shared__ unsigned char narrow[64];
  narrow[threadIdx.x] = static_cast<unsigned char>(threadIdx.x);
  bytes[threadIdx.x] = narrow[threadIdx.x];
  shorts[threadIdx.x] = narrow[threadIdx.x];
}

RIGHT(vector_copy, ({1, 64}, IS(i), counting(256), result(256)), const float* x, float* out) {
  reinterpret_cast<float4*>(out)[threadIdx.x] =
      __ldg(reinterpret_cast<const float4*>(x) + threadIdx.x);
}

RIGHT(three_dimensions,
      ({dim3(2, 3, 4), dim3(5, 3, 2)}, IS(1000 * (i / 30) + i % 30), result(24 * 30)), int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
      static_cast<int>(1000 * block + thread);
}

RIGHT(voting_barriers, ({1, 64}, IS(1110), result(64)), int* out) {
  const int count = __syncthreads_count(threadIdx.x < 10),
            all = __syncthreads_and(threadIdx.x < 1000), any = __syncthreads_or(threadIdx.x == 3);
  out[threadIdx.x] = count + 100 * all + 1000 * any;
}

RIGHT(votes, ({1, 32}, IS(15), result(32)), unsigned* out) {
  const unsigned lane = threadIdx.x;
  out[lane] = (__ballot_sync(kAllLanes, lane % 2) == 0xaaaaaaaau) +
              2 * (__reduce_add_sync(kAllLanes, lane) == 496u) +
              4 * (__reduce_max_sync(kAllLanes, static_cast<int>(lane) - 40) == -9) +
              8u * static_cast<unsigned>(__all_sync(kAllLanes, lane < 32) &&
                                         !__any_sync(kAllLanes, lane > 31));
}

RIGHT(shuffles, ({1, 32}, IS(15), result(32)), int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const int up = __shfl_up_sync(kAllLanes, lane, 3), down = __shfl_down_sync(kAllLanes, lane, 3, 8),
            broadcast = __shfl_sync(kAllLanes, lane, 2, 8);
  const double wide = __shfl_xor_sync(kAllLanes, static_cast<double>(lane), 1);
  out[lane] = (up == (lane < 3 ? lane : lane - 3)) +
              2 * (down == (lane % 8 < 5 ? lane + 3 : lane)) + 4 * (broadcast == lane / 8 * 8 + 2) +
              8 * (wide == (lane ^ 1));
}

// Tiles of 8 threads: reductions, and shared memory with the sync() of the tile and of the block.
RIGHT(cooperative_tiles, ({1, 64}, IS(i / 8 * 64 + 28 + i / 8 * 8 + 7), counting(64), result(64)),
      const float* x, float* out) {
  namespace cg = cooperative_groups;
  __shared__ float shared[64];
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  const float sum = cg::reduce(tile, x[block.thread_rank()], cg::plus<float>());
  const float largest = cg::reduce(tile, x[block.thread_rank()], cg::greater<float>());
  shared[block.thread_rank()] = sum + largest;
  tile.sync();
  const float neighbour = shared[tile.meta_group_rank() * 8 + (tile.thread_rank() + 1) % 8];
  block.sync();
  const unsigned odd = tile.ballot(tile.thread_rank() % 2);
  const float last = tile.shfl(neighbour, 7);
  out[block.thread_rank()] =
      last + (odd == 0xaau && tile.any(odd != 0) && tile.size() == 8 ? 0.0f : 1e6f);
}

// 1024 threads, and more shared memory than the default.
RIGHT(large_block, ({1, 1024, 80000}, IS(19999 - i), result(1024)), float* out) {
  FLASH_DYNAMIC_SHARED(float, tile);
  for (unsigned i = threadIdx.x; i < 20000; i += blockDim.x) tile[i] = static_cast<float>(i);
  __syncthreads();
  out[threadIdx.x] = tile[19999 - threadIdx.x];
}

// The end of a launch orders everything.
__global__ void first_of_two(float* data) { data[threadIdx.x] = static_cast<float>(threadIdx.x); }
__global__ void second_of_two(const float* data, float* out) {
  out[threadIdx.x] = data[blockDim.x - 1 - threadIdx.x];
}

const Listed two_launches_listed(Group::kRight, "two_launches", __FILE__, std::nullopt, [] {
  const auto data = on_device<float>(unwritten(64));
  launch("first_of_two", first_of_two, {1, 64}, data.data());
  return gives("second_of_two", second_of_two, {1, 64}, IS(63 - i), data.data(), result(64))();
});

}  // namespace

std::vector<Specimen>& specimens() {
  static std::vector<Specimen> all;
  return all;
}

bool is_checked() {
#ifdef __SANITIZE_THREAD__
  return true;
#else
  return false;
#endif
}

}  // namespace flash::simt_corpus
