// Right uses of mbarriers, TMA, wgmma and what belongs to them.
#include "simt/corpus/hopper.hpp"

namespace flash::simt_corpus {
namespace {

// A producer thread, whose warpgroup gives its registers away and returns; two warpgroups that
// multiply ones by each tile and add up. One arrival a warpgroup frees a tile, since only wgmma
// reads it. The tile's number is an ordinary store before the announcement, and is read by all:
// there each warp arrives. The last tile has fewer rows.
__global__ void elected_arrivals(const __grid_constant__ TensorMap map, int count, float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const ones = tiles(shared);
  Half* const ring = ones + kTile;
  __shared__ Barrier full[2], empty[2], number_read;
  __shared__ int number;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 2; ++stage) init(full[stage], 1), init(empty[stage], 2);
    init(number_read, 2 * 4);
    fence_barrier_init();
  }
  fill(ones, kTile);
  fence_proxy_async();
  __syncthreads();
  const int warpgroup = threadIdx.x / 128, thread = threadIdx.x % 128;
  if (warpgroup == 2) {
    give_registers<24>();
    if (thread != 0) return;
    for (int n = 0; n <= count; ++n) {
      wait(empty[n % 2], (n / 2 + 1) % 2);
      wait(number_read, (n + 1) % 2);
      number = n < count ? n : -1;
      if (n < count)
        copy(ring + n % 2 * kTile, map, full[n % 2], n * 64);
      else
        arrive(full[n % 2]);
    }
    return;
  }
  take_registers<240>();
  float D[32];
  for (int n = 0;; ++n) {
    wait(full[n % 2], n / 2 % 2);
    const int tile = number;
    __syncwarp();
    if (thread % 32 == 0) arrive(number_read);
    if (tile < 0) break;
    wgmma_fence();
    multiply<64>(D, ones, ring + n % 2 * kTile, tile > 0);
    wgmma_commit();
    wgmma_wait<0>();
    wait(full[n % 2], n / 2 % 2);  // again
    if (thread == 0) arrive(empty[n % 2]);
  }
  out[threadIdx.x] = sum(D);
}

// Fragments of a tile by ldmatrix, an arrival a warp behind a __syncwarp(). The barrier is asked
// rather than waited for.
__global__ void arrivals_of_warps(const __grid_constant__ TensorMap map, int count, float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const tile = tiles(shared);
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
    while (!has_ended(full, n % 2)) {
    }
    const int row = 32 * warp + lane;
    std::uint32_t r[4];
    ldmatrix<4>(r, tile + 64 * row + 8 * (2 ^ row % 8));  // columns 16 to 23 of 32 rows
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 2; ++half)
        total += to_float(Half::from_bits(static_cast<std::uint16_t>(r[i] >> 16 * half)));
    __syncwarp();
    if (lane == 0) arrive(empty);
  }
  out[threadIdx.x] = total;
}

// One thread waits, and a __syncwarp() tells its warp, a __syncthreads() the others.
__global__ void one_waits_for_all(const __grid_constant__ TensorMap map, float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const tile = tiles(shared);
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(full, 1), fence_barrier_init();
  __syncthreads();
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
__global__ void written_by_one(float* out) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  Half* const tile = tiles(shared);
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
  wgmma_commit();
  wgmma_wait<0>();
  out[threadIdx.x] = sum(D);
}

// A barrier of two warps of three, in place of a __syncthreads().
__global__ void two_warps_meet(float* out) {
  __shared__ float shared[64];
  if (threadIdx.x >= 64) return;
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  sync_named(1, 64);
  out[threadIdx.x] = shared[63 - threadIdx.x];
}

// Two warpgroups take turns, by barriers 1 and 2; the second one gives the first its first turn.
__global__ void turns(int count, float* out) {
  __shared__ float shared;
  const int warpgroup = threadIdx.x / 128;
  if (threadIdx.x == 0) shared = 0;
  __syncthreads();
  if (warpgroup == 1) arrive_named(1, 256);
  for (int n = 0; n < count; ++n) {
    sync_named(1 + warpgroup, 256);
    bool wrong = false;
    if (threadIdx.x % 128 == 0) {
      shared = 2 * shared + warpgroup;
      wrong = shared < 0;
    }
    if (any_named(3 + warpgroup, 128, wrong)) break;
    if (n + 1 < count || warpgroup == 0) arrive_named(2 - warpgroup, 256);
  }
  sync_named(5, 256);
  out[threadIdx.x] = shared;
}

// Both warps learn whether any of their threads says yes: thread 37 in the first round, none in the
// second.
__global__ void one_says_yes(float* out) {
  const bool first = any_named(1, 64, threadIdx.x == 37);
  const bool second = any_named(1, 64, false);
  out[threadIdx.x] = static_cast<float>(first) + 2 * static_cast<float>(second);
}

// Each warp stores its 16 rows through a slab of its own, twice.
__global__ void slabs(const __grid_constant__ TensorMap map) {
  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Half* const slab = tiles(shared) + warp * 16 * 64;
  for (int half = 0; half < 2; ++half) {
    if (lane == 0) tma_wait_read<0>();
    __syncwarp();
    for (int column = 0; column < 64; column += 16) {
      std::uint32_t r[4];
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i % 2 * 8;
        const std::uint32_t number = Half(1 + row).bits;
        r[i] = number | number << 16;
      }
      const int row = lane % 16, chunk = column / 8 + lane / 16;
      stmatrix<4>(slab + row * 64 + (chunk ^ row % 8) * 8, r);
    }
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
      tma_store(map, slab, 0, 64 * half + 16 * warp, 0, 0);
      tma_commit();
    }
  }
  if (lane == 0) tma_wait<0>();
}

}  // namespace

std::vector<Specimen> hopper_right() {
  const auto with = [](unsigned threads) {
    return LaunchConfig{1, threads, 1024 + 3 * std::size_t{kTileBytes}};
  };
  return {
      // A tile's row r sums up to 4096 (r % 8) + 2016; of the last tile 40 rows exist. A thread has
      // columns 2t and 2t + 1 of each 8, in two rows.
      right(KERNEL(elected_arrivals), with(384),
            IS(i < 256 ? 74 * (4096 * (4 * (i % 4) + 1) + 4032) : 0), Rows{4 * 64 + 40}, 5,
            result_from_zeros(384)),
      // Row r's column c is 64 (r % 8) + c; lane l has columns 16 + 2 (l % 4) and 17 + 2 (l % 4) of
      // a
      // row with r % 8 = l / 4, four of them.
      right(KERNEL(arrivals_of_warps), with(96),
            IS(i < 64 ? 3 * 4 * (2 * (64 * (i % 32 / 4) + 16 + 2 * (i % 4)) + 1) : 0), Rows{3 * 64},
            3, result_from_zeros(96)),
      right(KERNEL(one_waits_for_all), with(64), IS(i), Rows{64}, result(64)),
      right(KERNEL(written_by_one), with(128), IS(8 * 64), result(128)),
      right(KERNEL(two_warps_meet), {1, 96}, IS(63 - i), result(64)),
      right(KERNEL(turns), {1, 256}, IS(0b01010101), 4, result(256)),
      right(KERNEL(one_says_yes), {1, 64}, IS(1), result(64)),
      right(KERNEL(slabs), with(128), IS(1 + i / 64 % 16), Rows{128, 16, Rows::kResult}),
      {"attention", {}, attention_is_right},
  };
}

}  // namespace flash::simt_corpus
