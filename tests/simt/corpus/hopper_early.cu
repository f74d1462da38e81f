// Kernels that read too early, with known results. In the schedule `forward` the emulator picks the
// latest moment that CUDA permits, so what a kernel has not waited for is not there. A kernel that
// forgets a wait then gives a wrong result in the emulated build too, where nothing reports it.
#include "simt/corpus/hopper.hpp"

namespace flash::simt_corpus {
namespace {

// Shared memory and accumulators start as NaN.
template <int N>
__device__ __forceinline__ int count_nan(const float (&D)[N]) {
  int count = 0;
  for (int i = 0; i < N; ++i) count += D[i] != D[i];
  return count;
}

// The copy is not there before a wait, although all threads have met.
__global__ void copies_before_their_wait(const __grid_constant__ TensorMap map, float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const tile = tiles(shared);
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(full, 1), fence_barrier_init();
  __syncthreads();
  if (threadIdx.x == 0) copy(tile, map, full, 0);
  __syncthreads();
  const float before[1] = {to_float(tile[threadIdx.x])};
  __syncthreads();
  wait(full, 0);
  const float after[1] = {to_float(tile[threadIdx.x])};
  out[threadIdx.x] = static_cast<float>(10 * count_nan(before) + count_nan(after));
}

// A wait for one barrier does not bring the copy of another one.
__global__ void copies_of_another_barrier(const __grid_constant__ TensorMap map, float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const tile = tiles(shared);
  __shared__ Barrier full[2];
  if (threadIdx.x == 0) init(full[0], 1), init(full[1], 1), fence_barrier_init();
  __syncthreads();
  if (threadIdx.x == 0) {
    copy(tile, map, full[0], 0);
    copy(tile + kTile, map, full[1], 64);
  }
  wait(full[1], 0);
  const float other[1] = {to_float(tile[threadIdx.x])};
  __syncthreads();
  wait(full[0], 0);
  out[threadIdx.x] = static_cast<float>(count_nan(other));
}

// How many of 8 + 8 + 8 accumulators are NaN after the issue, after each of two waits, and after a
// late commit with its wait.
__global__ void accumulators_before_their_wait(float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const tile = tiles(shared);
  fill(tile, kTile);
  fence_proxy_async();
  __syncthreads();
  float first[8] = {}, second[8] = {}, uncommitted[8] = {};
  const auto count = [&] { return count_nan(first) + count_nan(second) + count_nan(uncommitted); };
  wgmma_fence();
  multiply<16>(first, tile, tile);
  wgmma_commit();
  multiply<16>(second, tile, tile);
  wgmma_commit();
  multiply<16>(uncommitted, tile, tile);
  int counts = count();
  wgmma_wait<1>();
  counts = 100 * counts + count();
  wgmma_wait<0>();
  counts = 100 * counts + count();
  wgmma_commit();
  wgmma_wait<0>();
  out[threadIdx.x] = static_cast<float>(100 * counts + count());
}

// A product reads its tiles when it is waited for: all ones are twos by then.
__global__ void tiles_until_the_wait(float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const tile = tiles(shared);
  fill(tile, kTile);
  fence_proxy_async();
  __syncthreads();
  float D[8];
  wgmma_fence();
  multiply<16>(D, tile, tile);
  wgmma_commit();
  for (int i = threadIdx.x; i < kTile; i += blockDim.x) tile[i] = from_float<Half>(2);
  __syncthreads();
  wgmma_wait<0>();
  out[threadIdx.x] = D[0];
}

// A store reads its box when the thread waits for that, and is in device memory after tma_wait().
__global__ void stores_until_their_waits(const __grid_constant__ TensorMap map, float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const tile = tiles(shared);
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(full, 1), fence_barrier_init();
  fill(tile, kTile);
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    tma_store(map, tile, 0, 0, 0, 0);
    tma_commit();
    tile[0] = from_float<Half>(2);
    tma_wait_read<0>();
    copy(tile + kTile, map, full, 0);  // what device memory holds now
    wait(full, 0);
    out[0] = 2 - to_float(tile[kTile]);  // 2: still the zero that was there before
    tma_wait<0>();
  }
}

}  // namespace

std::vector<Specimen> hopper_early() {
  const auto with = [](unsigned threads) {
    return LaunchConfig{1, threads, 1024 + 2 * std::size_t{kTileBytes}};
  };
  const Rows rows{128};
  return {
      right(KERNEL(copies_before_their_wait), with(32), IS(10), rows, result(32)),
      right(KERNEL(copies_of_another_barrier), with(32), IS(1), rows, result(32)),
      right(KERNEL(accumulators_before_their_wait), with(128), IS(24160800), result(128)),
      right(KERNEL(tiles_until_the_wait), with(128), IS(64 * 4), result(128)),
      // The tensor's rows were zeros; its first element gets the 2, the other ones of the box 1.
      right(KERNEL(stores_until_their_waits), with(32), IS(i == 0 ? 2 : i < kTile),
            Rows{128, 64, Rows::kResult}, result_from_zeros(1)),
  };
}

}  // namespace flash::simt_corpus
