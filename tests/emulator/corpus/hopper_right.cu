// Right uses of mbarriers, TMA, wgmma and what belongs to them.
#include "emulator/corpus/hopper.hpp"

namespace flash::simt_corpus {
namespace {

// Fragments of a tile by ldmatrix, an arrival a warp behind a __syncwarp().
RIGHT(arrivals_of_warps,
      (with(96), IS(i < 64 ? 3 * 4 * (2 * (64 * (i % 32 / 4) + 16 + 2 * (i % 4)) + 1) : 0),
       Rows{3 * 64}, 3, result_from_zeros(96)),
      MAP, int count, float* out) {
  TILE;
  __shared__ Barrier full, empty;
  if (threadIdx.x == 0) init(full, 1), init(empty, 2), fence_barrier_init();
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 2) {
    for (int n = 0; n < count && lane == 0; ++n) {
      wait(empty, (n + 1) % 2);
      copy(tile, map, full, 64 * n);
    }
    return;
  }
  float total = 0;
  for (int n = 0; n < count; ++n) {
    wait(full, n % 2);
    const int row = 32 * warp + lane;
    std::uint32_t r[4];
    ldmatrix(r, tile + 64 * row + 8 * (2 ^ row % 8));  // columns 16 to 23 of 32 rows
    for (int i = 0; i < 8; ++i) total += to_float(reinterpret_cast<const Half*>(r)[i]);
    __syncwarp();
    if (lane == 0) arrive(empty);
  }
  out[threadIdx.x] = total;
}

// One thread waits, and a __syncwarp() tells its warp, a __syncthreads() the others.
RIGHT(one_waits_for_all, (with(64), IS(i), Rows{64}, result(64)), MAP, float* out) {
  TILE_AND_BARRIER;
  if (threadIdx.x == 0) {
    copy(tile, map, full, 0);
    wait(full, 0);
  }
  if (threadIdx.x < 32) __syncwarp();
  float first = threadIdx.x < 32 ? to_float(tile[threadIdx.x]) : 0;
  __syncthreads();
  if (threadIdx.x >= 32) first = to_float(tile[threadIdx.x]);
  out[threadIdx.x] = first;
}

// One thread writes a tile, and arrives; it need not wait.
RIGHT(written_by_one, (with(128), IS(8 * 64), result(128)), float* out) {
  TILE;
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(full, 1);
  __syncthreads();
  if (threadIdx.x == 64) {
    for (int i = 0; i < kTile; ++i) tile[i] = from_float<Half>(1);
    fence_proxy_async();
    arrive(full);
  } else {
    wait(full, 0);
  }
  float D[8];
  wgmma_fence();
  multiply<16>(D, tile, tile);
  WAIT_AND_SUM;
}

// A barrier of two warps of three, in place of a __syncthreads().
RIGHT(two_warps_meet, ({1, 96}, IS(63 - i), result(64)), float* out) {
  __shared__ float shared[64];
  if (threadIdx.x >= 64) return;
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  sync_named(1, 64);
  out[threadIdx.x] = shared[63 - threadIdx.x];
}

// Kernels that read too early, with known results. In the schedule `forward` the emulator picks the
// latest moment that CUDA permits, so what a kernel has not waited for is not there. A kernel that
// forgets a wait then gives a wrong result in the emulated build too, where nothing reports it.

// Shared memory and accumulators start as NaN.
template <int N>
__device__ __forceinline__ int count_nan(const float (&D)[N]) {
  int count = 0;
  for (int i = 0; i < N; ++i) count += D[i] != D[i];
  return count;
}

// The copy is not there before a wait, although all threads have met.
EARLY(copies_before_their_wait, (with(32), IS(10), kRows, result(32)), MAP, float* out) {
  TILE_AND_BARRIER;
  COPY_TILE;
  __syncthreads();
  const float before[1] = {to_float(tile[threadIdx.x])};
  __syncthreads();
  wait(full, 0);
  const float after[1] = {to_float(tile[threadIdx.x])};
  out[threadIdx.x] = static_cast<float>(10 * count_nan(before) + count_nan(after));
}

// How many of 8 + 8 + 8 accumulators are NaN after the issue, after each of two waits, and after a
// late commit with its wait.
EARLY(accumulators_before_their_wait, (with(128), IS(24160800), result(128)), float* out) {
  TILE_OF_ONES;
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

// A store reads its box when the thread waits for that, and is in device memory after tma_wait().
EARLY(stores_until_their_waits,
      (with(32), IS(i == 0 ? 2 : i < kTile), Rows{128, 64, Rows::kResult}, result_from_zeros(1)),
      MAP, float* out) {
  TILE;
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
}  // namespace flash::simt_corpus
