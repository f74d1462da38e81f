// Right kernels: what a check that cries wolf would report. Each result is compared with what it has to be.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "common/cuda/launch.hpp"
#include "simt/corpus/corpus.hpp"

namespace flash::simt_corpus {
namespace {

constexpr unsigned kAllLanes = 0xffffffffu;

__global__ void reverse_tile(const float* x, float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
}

// Two barriers a tile: before the product, and before the next tile.
__global__ void tile_loop(const float* x, float* out, int tiles) {
  FLASH_DYNAMIC_SHARED(float, tile);
  float sum = 0;
  for (int t = 0; t < tiles; ++t) {
    __syncthreads();
    tile[threadIdx.x] = x[t * 64 + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 64; ++j) sum += tile[j];
  }
  out[threadIdx.x] = sum;
}

// Two buffers, one barrier a tile.
__global__ void double_buffer(const float* x, float* out, int tiles) {
  __shared__ float buffer[2][64];
  float sum = 0;
  for (int t = 0; t < tiles; ++t) {
    buffer[t % 2][threadIdx.x] = x[t * 64 + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 64; ++j) sum += buffer[t % 2][j];
  }
  out[threadIdx.x] = sum;
}

__global__ void warp_reduction(const float* x, float* out) {
  float sum = x[blockIdx.x * 32 + threadIdx.x];
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAllLanes, sum, distance);
  out[blockIdx.x * 32 + threadIdx.x] = sum;
}

// Through shared memory, with __syncwarp() where lockstep was once relied upon.
__global__ void syncwarp_reduction(const float* x, float* out) {
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

// Halves of a warp that go their own ways, each with its mask.
__global__ void half_warps(float* out) {
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
  float value = static_cast<float>(threadIdx.x);
  const int turns = threadIdx.x < 16 ? 3 : 5;
  for (int i = 0; i < turns; ++i) value = __shfl_sync(mask, value, static_cast<int>((threadIdx.x & 16) + (threadIdx.x + 1) % 16));
  out[threadIdx.x] = value;
}

// A last warp with 16 lanes, which names only those.
__global__ void partial_warp_with_mask(float* out) {
  const unsigned lanes = threadIdx.x < 32 ? 32 : 16;
  const unsigned mask = lanes == 32 ? kAllLanes : 0xffffu;
  float sum = 1;
  for (unsigned distance = lanes / 2; distance > 0; distance /= 2) sum += __shfl_down_sync(mask, sum, distance);
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = sum;
}

// A whole warp leaves; the others use warp operations only.
__global__ void warps_leave(const float* x, float* out, int rows) {
  const int row = static_cast<int>(threadIdx.x / 32);
  if (row >= rows) return;
  float sum = x[row * 32 + threadIdx.x % 32];
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (threadIdx.x % 32 == 0) out[row] = sum;
}

__global__ void atomic_histogram(const int* keys, int* counts) {
  __shared__ int local[8];
  if (threadIdx.x < 8) local[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&local[keys[blockIdx.x * blockDim.x + threadIdx.x]], 1);
  __syncthreads();
  if (threadIdx.x < 8) atomicAdd(&counts[threadIdx.x], local[threadIdx.x]);
}

// The last block to finish adds up what all have left: a fence before the counter.
__global__ void last_block_sums(float* partial, unsigned* count, float* out) {
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

// One warp after the other takes the lock, and adds to a plain variable behind it.
__global__ void spin_lock(int* lock, float* sum) {
  if (threadIdx.x % 32 == 0) {
    while (atomicCAS(lock, 0, 1) != 0) __nanosleep(20);
    sum[0] += 1;
    __threadfence();
    atomicExch(lock, 0);
  }
}

// Lane 0 of the second warp waits, by an atomic operation alone, for what the first warp has written; its warp reads it after a
// __syncwarp(), and the first warp had one before its lane 0 published.
__global__ void published_by_a_flag(int* flag, float* data, float* out) {
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
__global__ void small_elements(unsigned char* bytes, unsigned short* shorts) {
  __shared__ unsigned char narrow[64];
  narrow[threadIdx.x] = static_cast<unsigned char>(threadIdx.x);
  bytes[threadIdx.x] = narrow[threadIdx.x];
  shorts[threadIdx.x] = static_cast<unsigned short>(2 * narrow[threadIdx.x]);
}

__global__ void vector_copy(const float* x, float* out) {
  reinterpret_cast<float4*>(out)[threadIdx.x] = __ldg(reinterpret_cast<const float4*>(x) + threadIdx.x);
}

__global__ void three_dimensions(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = static_cast<int>(1000 * block + thread);
}

__global__ void voting_barriers(int* out) {
  const int count = __syncthreads_count(threadIdx.x < 10), all = __syncthreads_and(threadIdx.x < 1000),
            any = __syncthreads_or(threadIdx.x == 3);
  out[threadIdx.x] = count + 100 * all + 1000 * any;
}

__global__ void votes(unsigned* out) {
  const unsigned lane = threadIdx.x;
  const unsigned odd = __ballot_sync(kAllLanes, lane % 2), same = __match_any_sync(kAllLanes, lane / 8);
  int all = 0;
  const unsigned everybody = __match_all_sync(kAllLanes, 7, &all);
  out[lane] = (odd == 0xaaaaaaaau) + 2 * (same == 0xffu << (lane / 8 * 8)) + 4 * (everybody == kAllLanes && all) +
              8 * (__reduce_add_sync(kAllLanes, lane) == 496u) + 16 * (__reduce_max_sync(kAllLanes, static_cast<int>(lane) - 40) == -9) +
              32u * static_cast<unsigned>(__all_sync(kAllLanes, lane < 32) && !__any_sync(kAllLanes, lane > 31));
}

// Each lane has its answer and returns while others have not yet looked at theirs; bits are compared, not numbers.
__global__ void matches_and_leaves(int* out) {
  int all = 0;
  const unsigned nan_and_zero = __match_any_sync(kAllLanes, threadIdx.x % 2 ? NAN : threadIdx.x % 4 ? 0.0f : -0.0f);
  const unsigned everybody = __match_all_sync(kAllLanes, 7, &all);
  out[threadIdx.x] = all && everybody == kAllLanes && nan_and_zero == (threadIdx.x % 2 ? 0xaaaaaaaau : threadIdx.x % 4 ? 0x44444444u : 0x11111111u);
}

__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const int up = __shfl_up_sync(kAllLanes, lane, 3), down = __shfl_down_sync(kAllLanes, lane, 3, 8),
            broadcast = __shfl_sync(kAllLanes, lane, 2, 8);
  const double wide = __shfl_xor_sync(kAllLanes, static_cast<double>(lane), 1);
  out[lane] = (up == (lane < 3 ? lane : lane - 3)) + 2 * (down == (lane % 8 < 5 ? lane + 3 : lane)) +
              4 * (broadcast == lane / 8 * 8 + 2) + 8 * (wide == (lane ^ 1));
}

// Tiles of 8 threads: a reduction each, a turn through shared memory with the tile's own sync(), and the block's.
__global__ void cooperative_tiles(const float* x, float* out) {
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
  out[block.thread_rank()] = last + (odd == 0xaau && tile.any(odd != 0) && tile.size() == 8 ? 0.0f : 1e6f);
}

// 1024 threads, and more shared memory than the default.
__global__ void large_block(float* out) {
  FLASH_DYNAMIC_SHARED(float, tile);
  for (unsigned i = threadIdx.x; i < 20000; i += blockDim.x) tile[i] = static_cast<float>(i);
  __syncthreads();
  out[threadIdx.x] = tile[19999 - threadIdx.x];
}

// Each thread initializes its own word, and one more launch reads it: the end of a launch orders everything.
__global__ void first_of_two(float* data) { data[threadIdx.x] = static_cast<float>(threadIdx.x); }
__global__ void second_of_two(const float* data, float* out) { out[threadIdx.x] = data[blockDim.x - 1 - threadIdx.x]; }

template <class Expect>
bool equals(const DeviceTensor<float, 1>& got, Expect expect) {
  const Tensor<float, 1> host = got.to_host();
  for (Index i = 0; i < host.size(); ++i)
    if (!(host(i) == static_cast<float>(expect(i)))) return false;
  return true;
}
template <class Expect>
bool equals(const DeviceTensor<int, 1>& got, Expect expect) {
  const Tensor<int, 1> host = got.to_host();
  for (Index i = 0; i < host.size(); ++i)
    if (host(i) != static_cast<int>(expect(i))) return false;
  return true;
}

}  // namespace

std::vector<Specimen> right() {
  return {
      {"reverse_tile", {}, [] {
         const auto x = counting(128), out = unwritten(128);
         launch("reverse_tile", reverse_tile, {.grid = 2, .block = 64}, x.data(), out.data());
         return equals(out, [](Index i) { return i / 64 * 64 + 63 - i % 64; });
       }},
      {"tile_loop", {}, [] {
         const auto x = counting(192), out = unwritten(64);
         launch("tile_loop", tile_loop, {.grid = 1, .block = 64, .shared_bytes = 256}, x.data(), out.data(), 3);
         return equals(out, [](Index) { return 191 * 192 / 2; });
       }},
      {"double_buffer", {}, [] {
         const auto x = counting(320), out = unwritten(64);
         launch("double_buffer", double_buffer, {.grid = 1, .block = 64}, x.data(), out.data(), 5);
         return equals(out, [](Index) { return 319 * 320 / 2; });
       }},
      {"warp_reduction", {}, [] {
         const auto x = counting(64), out = unwritten(64);
         launch("warp_reduction", warp_reduction, {.grid = 2, .block = 32}, x.data(), out.data());
         return equals(out, [](Index i) { return i < 32 ? 496 : 496 + 1024; });
       }},
      {"syncwarp_reduction", {}, [] {
         const auto x = counting(128), out = unwritten(4);
         launch("syncwarp_reduction", syncwarp_reduction, {.grid = 1, .block = 128}, x.data(), out.data());
         return equals(out, [](Index i) { return 496 + 1024 * i; });
       }},
      {"half_warps", {}, [] {
         const auto out = unwritten(32);
         launch("half_warps", half_warps, {.grid = 1, .block = 32}, out.data());
         return equals(out, [](Index i) { return i / 16 * 16 + (i + (i < 16 ? 3 : 5)) % 16; });
       }},
      {"partial_warp_with_mask", {}, [] {
         const auto out = unwritten(2);
         launch("partial_warp_with_mask", partial_warp_with_mask, {.grid = 1, .block = 48}, out.data());
         return equals(out, [](Index i) { return i == 0 ? 32 : 16; });
       }},
      {"warps_leave", {}, [] {
         const auto x = counting(96), out = unwritten(3);
         launch("warps_leave", warps_leave, {.grid = 1, .block = 128}, x.data(), out.data(), 3);
         return equals(out, [](Index i) { return 496 + 1024 * i; });
       }},
      {"atomic_histogram", {}, [] {
         Tensor<int, 1> keys({256});
         for (Index i = 0; i < 256; ++i) keys(i) = static_cast<int>(i * i % 8);
         const DeviceTensor<int, 1> device_keys(keys);
         const auto counts = integer_zeros(8);
         launch("atomic_histogram", atomic_histogram, {.grid = 4, .block = 64}, device_keys.data(), counts.data());
         return equals(counts, [](Index i) { return i == 0 || i == 4 ? 64 : i == 1 ? 128 : 0; });
       }},
      {"last_block_sums", {}, [] {
         const auto partial = unwritten(7), out = unwritten(1);
         const auto count = integer_zeros(1);
         launch("last_block_sums", last_block_sums, {.grid = 7, .block = 32}, partial.data(), reinterpret_cast<unsigned*>(count.data()),
                out.data());
         return equals(out, [](Index) { return 7 * 32; });
       }},
      {"spin_lock", {}, [] {
         const auto sum = zeros(1);
         const auto lock = integer_zeros(1);
         launch("spin_lock", spin_lock, {.grid = 3, .block = 256}, lock.data(), sum.data());
         return equals(sum, [](Index) { return 24; });
       }},
      {"published_by_a_flag", {}, [] {
         const auto data = unwritten(32), out = unwritten(32);
         const auto flag = integer_zeros(1);
         launch("published_by_a_flag", published_by_a_flag, {.grid = 1, .block = 64}, flag.data(), data.data(), out.data());
         return equals(out, [](Index i) { return 31 - i; });
       }},
      {"small_elements", {}, [] {
         const auto bytes = integer_zeros(16), shorts = integer_zeros(32);
         launch("small_elements", small_elements, {.grid = 1, .block = 64}, reinterpret_cast<unsigned char*>(bytes.data()),
                reinterpret_cast<unsigned short*>(shorts.data()));
         return equals(bytes, [](Index i) { return 0x03020100 + 0x04040404 * i; }) &&
                equals(shorts, [](Index i) { return (4 * i + 2) << 16 | 4 * i; });
       }},
      {"vector_copy", {}, [] {
         const auto x = counting(256), out = unwritten(256);
         launch("vector_copy", vector_copy, {.grid = 1, .block = 64}, x.data(), out.data());
         return equals(out, [](Index i) { return i; });
       }},
      {"three_dimensions", {}, [] {
         const auto out = integer_zeros(24 * 30);
         launch("three_dimensions", three_dimensions, {.grid = dim3(2, 3, 4), .block = dim3(5, 3, 2)}, out.data());
         return equals(out, [](Index i) { return 1000 * (i / 30) + i % 30; });
       }},
      {"voting_barriers", {}, [] {
         const auto out = integer_zeros(64);
         launch("voting_barriers", voting_barriers, {.grid = 1, .block = 64}, out.data());
         return equals(out, [](Index) { return 1110; });
       }},
      {"votes", {}, [] {
         const auto out = integer_zeros(32);
         launch("votes", votes, {.grid = 1, .block = 32}, reinterpret_cast<unsigned*>(out.data()));
         return equals(out, [](Index) { return 63; });
       }},
      {"matches_and_leaves", {}, [] {
         const auto out = integer_zeros(32);
         launch("matches_and_leaves", matches_and_leaves, {.grid = 1, .block = 32}, out.data());
         return equals(out, [](Index) { return 1; });
       }},
      {"shuffles", {}, [] {
         const auto out = integer_zeros(32);
         launch("shuffles", shuffles, {.grid = 1, .block = 32}, out.data());
         return equals(out, [](Index) { return 15; });
       }},
      {"cooperative_tiles", {}, [] {
         const auto x = counting(64), out = unwritten(64);
         launch("cooperative_tiles", cooperative_tiles, {.grid = 1, .block = 64}, x.data(), out.data());
         return equals(out, [](Index i) { return i / 8 * 64 + 28 + i / 8 * 8 + 7; });
       }},
      {"large_block", {}, [] {
         const auto out = unwritten(1024);
         launch("large_block", large_block, {.grid = 1, .block = 1024, .shared_bytes = 80000}, out.data());
         return equals(out, [](Index i) { return 19999 - i; });
       }},
      {"two_launches", {}, [] {
         const auto data = unwritten(64), out = unwritten(64);
         launch("first_of_two", first_of_two, {.grid = 1, .block = 64}, data.data());
         launch("second_of_two", second_of_two, {.grid = 1, .block = 64}, data.data(), out.data());
         return equals(out, [](Index i) { return 63 - i; });
       }},
  };
}

bool is_checked() { return FLASH_SIMT_CHECKED != 0; }

}  // namespace flash::simt_corpus
