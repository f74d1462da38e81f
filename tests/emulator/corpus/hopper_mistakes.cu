// What goes wrong with mbarriers, TMA, wgmma and what belongs to them: a mistake a kernel.
#include "emulator/corpus/hopper.hpp"

namespace flash::simt_corpus {
namespace {

// All read the same number, but one warp without having waited.
MISTAKE(kRace, one_warp_does_not_wait, (with(96), kRows, kOut), MAP, float* out) {
  TILE_AND_BARRIER;
  COPY_TILE;  // BUG
  __syncthreads();
  if (threadIdx.x < 64) wait(full, 0);
  out[threadIdx.x] = to_float(tile[0]);  // BUG
}

MISTAKE(kRace, waits_for_the_wrong_parity, (with(32), kRows, kOut), MAP, float* out) {
  TILE_AND_BARRIER;
  wait(full, 1);
  __syncthreads();  // so that it is phase 0 that goes on at the wait, under every schedule
  COPY_TILE;        // BUG
  READ_TILE;        // BUG
}

// A wait sees what was done before the arrivals of its own phase, not of the next one. Each phase
// has two arrivals; phase 1 gets one, and does not end.
MISTAKE(kRace, waits_for_the_phase_before, (with(64), kOut), float* out) {
  __shared__ Barrier ready;
  __shared__ float shared;
  if (threadIdx.x == 0) init(ready, 2);
  __syncthreads();
  if (threadIdx.x % 32 == 0) arrive(ready);
  wait(ready, 0);
  __syncthreads();
  if (threadIdx.x == 32) {
    shared = 1;  // BUG
    arrive(ready);
  } else if (threadIdx.x == 0) {
    wait(ready, 0);
    out[0] = shared;  // BUG
  }
}

MISTAKE(kWrongArgument, announces_too_few_bytes, (with(32), kRows, kOut), MAP, float* out) {
  TILE_AND_BARRIER;
  if (threadIdx.x == 0) {
    arrive_expecting(full, kTileBytes);
    tma_load(tile, map, full, 0, 0, 0, 0);
    tma_load(tile + kTile, map, full, 0, 64, 0, 0);  // BUG
  }
  wait(full, 0);
  READ_TILE;
}

MISTAKE(kDeadlock, announces_too_many_bytes, (with(32), kRows, kOut), MAP, float* out) {
  TILE_AND_BARRIER;
  if (threadIdx.x == 0) {
    arrive_expecting(full, 2 * kTileBytes);
    tma_load(tile, map, full, 0, 0, 0, 0);
  }
  wait(full, 0);  // BUG
  READ_TILE;
}

MISTAKE(kDeadlock, expects_an_arrival_too_many, (with(32), kRows, kOut), MAP, float* out) {
  TILE;
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(full, 2), fence_barrier_init();
  __syncthreads();
  COPY_TILE;
  wait(full, 0);  // BUG
  READ_TILE;
}

MISTAKE(kRace, releases_before_it_reads, (with(64), kRows, kOut), MAP, float* out) {
  TILE;
  __shared__ Barrier full, empty;
  if (threadIdx.x == 0) init(full, 1), init(empty, 1), fence_barrier_init();
  __syncthreads();
  if (threadIdx.x == 32) {
    copy(tile, map, full, 0);
    wait(empty, 0);
    copy(tile, map, full, 64);  // BUG
    wait(full, 1);
  } else if (threadIdx.x < 32) {
    wait(full, 0);
    if (threadIdx.x == 0) arrive(empty);
    READ_TILE;  // BUG
  }
}

MISTAKE(kWrongArgument, barrier_not_initialized, (with(32), kRows, kOut), MAP, float* out) {
  TILE;
  __shared__ Barrier full[2];
  if (threadIdx.x == 0) init(full[0], 1), fence_barrier_init();
  __syncthreads();
  if (threadIdx.x == 0) copy(tile, map, full[1], 0);  // BUG
  __syncthreads();
  READ_TILE;
}

// The fence comes behind the barrier that tells the others of it.
MISTAKE(kFence, barrier_known_to_tma_too_late, (with(64), kRows, kOut), MAP, float* out) {
  TILE;
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(full, 1);
  __syncthreads();
  if (threadIdx.x == 0) fence_barrier_init();
  if (threadIdx.x == 32) copy(tile, map, full, 0);  // BUG
  wait(full, 0);
  READ_TILE;
}

MISTAKE(kWrongArgument, barrier_made_twice, (with(32), kOut), float* out) {
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    init(full, 1);
    init(full, 1);  // BUG
  }
  out[threadIdx.x] = 0;
}

MISTAKE(kUninitialized, copies_what_nobody_wrote, (with(32), Rows{64, 64, Rows::kUnwritten}, kOut),
        MAP, float* out) {
  TILE_AND_BARRIER;
  COPY_TILE;  // BUG
  wait(full, 0);
  READ_TILE;
}

// The tensor map has twice the rows that were allocated.
MISTAKE(kOutOfBounds, copies_from_behind_the_tensor,
        (with(32), Rows{64, 64, Rows::kCounting, 128}, kOut), MAP, float* out) {
  TILE_AND_BARRIER;
  if (threadIdx.x == 0) copy(tile, map, full, 64);  // BUG
  wait(full, 0);
  READ_TILE;
}

MISTAKE(kAsyncCopy, copy_that_nobody_waits_for, (with(32), kRows), MAP) {
  TILE_AND_BARRIER;
  COPY_TILE;  // BUG
}

MISTAKE(kMisaligned, tile_not_at_1024, (with(32), kRows, kOut), MAP, float* out) {
  FLASH_DYNAMIC_SHARED(Half, tile);
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(full, 1), fence_barrier_init();
  __syncthreads();
  COPY_TILE;  // BUG
  wait(full, 0);
  READ_TILE;
}

// Boxes of 128 rows, tiles of 64.
MISTAKE(kRace, box_larger_than_its_tile, (with(32, 4), Rows{128, 128}, kOut), MAP, float* out) {
  TILE_AND_BARRIER;
  if (threadIdx.x == 0) {
    arrive_expecting(full, 4 * kTileBytes);
    tma_load(tile, map, full, 0, 0, 0, 0);           // BUG
    tma_load(tile + kTile, map, full, 0, 64, 0, 0);  // BUG
  }
  wait(full, 0);
  READ_TILE;
}

MISTAKE(kOutOfBounds, box_behind_shared_memory, (with(32), Rows{128, 128}, kOut), MAP, float* out) {
  TILE_AND_BARRIER;
  if (threadIdx.x == 0) {
    arrive_expecting(full, 2 * kTileBytes);
    tma_load(tile + kTile, map, full, 0, 0, 0, 0);  // BUG
  }
  wait(full, 0);
  READ_TILE;
}

// The fence is for those that wrote, and before the barrier.
MISTAKE(kFence, proxy_fence_behind_the_barrier, (with(128), kOut), float* out) {
  TILE;
  for (int i = threadIdx.x; i < kTile; i += 128) tile[i] = from_float<Half>(1);  // BUG
  __syncthreads();
  fence_proxy_async();
  float D[8];
  wgmma_fence();
  multiply<16>(D, tile, tile);  // BUG
  WAIT_AND_SUM;
}

MISTAKE(kFence, no_proxy_fence_before_an_overwriting_load, (with(32), kRows, kOut), MAP,
        float* out) {
  TILE;
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(full, 1), fence_barrier_init();
  tile[threadIdx.x] = from_float<Half>(1);  // BUG
  __syncthreads();
  COPY_TILE;  // BUG
  wait(full, 0);
  READ_TILE;
}

MISTAKE(kRace, slab_changed_during_a_store, (with(32), kRows), MAP) {
  TILE_OF_ONES;
  if (threadIdx.x == 0) {
    tma_store(map, tile, 0, 0, 0, 0);  // BUG
    tma_commit();
  }
  __syncwarp();
  tile[threadIdx.x] = from_float<Half>(2);  // BUG
  if (threadIdx.x == 0) tma_wait<0>();
}

MISTAKE(kAsyncCopy, store_not_waited_for, (with(32), kRows), MAP) {
  TILE_OF_ONES;
  if (threadIdx.x != 0) return;
  tma_store(map, tile, 0, 0, 0, 0);  // BUG
  tma_commit();
}

MISTAKE(kOutOfBounds, stores_behind_the_tensor, (with(32), Rows{64, 64, Rows::kResult, 128}), MAP) {
  TILE_OF_ONES;
  if (threadIdx.x != 0) return;
  tma_store(map, tile, 0, 64, 0, 0);  // BUG
  tma_commit();
  tma_wait<0>();
}

// A load may begin before the tensor, a store may not.
MISTAKE(kWrongArgument, stores_before_the_tensor, (with(32), kRows), MAP) {
  TILE_OF_ONES;
  if (threadIdx.x != 0) return;
  tma_store(map, tile, 0, -16, 0, 0);  // BUG
  tma_commit();
  tma_wait<0>();
}

MISTAKE(kUninitialized, stores_what_nobody_wrote, (with(32), kRows), MAP) {
  TILE;
  fill(tile, kTile - 64);
  fence_proxy_async();
  __syncwarp();
  if (threadIdx.x != 0) return;
  tma_store(map, tile, 0, 0, 0, 0);  // BUG
  tma_commit();
  tma_wait<0>();
}

MISTAKE(kAsyncCopy, waits_for_a_group_too_few, (with(128), kOut), float* out) {
  TILE_OF_ONES;
  float S[8], D[8];
  wgmma_fence();
  multiply<16>(S, tile, tile);
  wgmma_commit();
  multiply<16>(D, tile, tile);
  wgmma_commit();
  wgmma_wait<1>();
  out[threadIdx.x] = S[0] + D[0];  // BUG
  wgmma_wait<0>();
}

MISTAKE(kAsyncCopy, returns_during_a_product, (with(128), kOut), float* out) {
  TILE_OF_ONES;
  float D[8];
  wgmma_fence();
  multiply<16>(D, tile, tile);  // BUG
  wgmma_commit();
  out[threadIdx.x] = 0;
}

MISTAKE(kRace, tile_changed_in_flight, (with(128), kOut), float* out) {
  TILE_OF_ONES;
  float D[8];
  wgmma_fence();
  multiply<16>(D, tile, tile);  // BUG
  wgmma_commit();
  tile[threadIdx.x] = from_float<Half>(2);  // BUG
  wgmma_wait<0>();
  out[threadIdx.x] = sum(D);
}

MISTAKE(kAsyncCopy, a_rewritten_in_flight, (with(128), kOut), float* out) {
  TILE_OF_ONES;
  float D[8];
  std::uint32_t A[4] = {1, 2, 3, 4};
  wgmma_fence();
  wgmma<16, Half>(D, A, matrix_descriptor(tile, 16, 1024), false);
  wgmma_commit();
  A[1] = threadIdx.x;  // BUG
  wgmma_wait<0>();
  out[threadIdx.x] = sum(D) + A[1];
}

MISTAKE(kFence, no_wgmma_fence, (with(128), kOut), float* out) {
  TILE_OF_ONES;
  float D[8] = {};
  multiply<16>(D, tile, tile, true);  // BUG
  WAIT_AND_SUM;
}

MISTAKE(kFence, no_wgmma_fence_after_a_change, (with(128), kOut), float* out) {
  TILE_OF_ONES;
  float D[8];
  wgmma_fence();
  multiply<16>(D, tile, tile);
  wgmma_commit();
  wgmma_wait<0>();
  for (float& d : D) d *= 0.5f;
  multiply<16>(D, tile, tile, true);  // BUG
  WAIT_AND_SUM;
}

MISTAKE(kRace, releases_during_a_product, (with(256), kRows, kOut), MAP, float* out) {
  TILE;
  __shared__ Barrier full, empty;
  if (threadIdx.x == 0) init(full, 1), init(empty, 1), fence_barrier_init();
  __syncthreads();
  if (threadIdx.x == 128) {
    copy(tile, map, full, 0);
    wait(empty, 0);
    copy(tile, map, full, 64);  // BUG
    wait(full, 1);
  } else if (threadIdx.x < 128) {
    wait(full, 0);
    float D[8];
    wgmma_fence();
    multiply<16>(D, tile, tile);  // BUG
    wgmma_commit();
    if (threadIdx.x == 0) arrive(empty);
    wgmma_wait<0>();
    out[threadIdx.x] = sum(D);
  }
}

MISTAKE(kRace, product_of_a_tile_not_waited_for, (with(128), kRows, kOut), MAP, float* out) {
  TILE_AND_BARRIER;
  COPY_TILE;  // BUG
  if (threadIdx.x < 32) wait(full, 0);
  float D[8];
  wgmma_fence();
  multiply<16>(D, tile, tile);  // BUG
  WAIT_AND_SUM;
}

MISTAKE(kWarpgroupMismatch, half_a_warpgroup, (with(128), kOut), float* out) {
  TILE_OF_ONES;
  float D[8] = {};
  wgmma_fence();
  if (threadIdx.x < 64)
    wgmma<16, Half>(D, matrix_descriptor(tile, 16, 1024), matrix_descriptor(tile, 16, 1024),  // BUG
                    false);
  WAIT_AND_SUM;
}

MISTAKE(kWarpgroupMismatch, descriptors_differ, (with(128), kOut), float* out) {
  TILE;
  fill(tile, 2 * kTile);
  fence_proxy_async();
  __syncthreads();
  float D[8];
  wgmma_fence();
  const MatrixDescriptor a = matrix_descriptor(tile + threadIdx.x / 32 * 16 * 64, 16, 1024);
  wgmma<16, Half>(D, a, matrix_descriptor(tile, 16, 1024), false);  // BUG
  WAIT_AND_SUM;
}

MISTAKE(kOutOfBounds, tile_behind_shared_memory, (with(128, 1), kOut), float* out) {
  TILE_OF_ONES;
  float D[8];
  wgmma_fence();
  const MatrixDescriptor b = matrix_descriptor(tile, 1024, 16 * kTileBytes);
  wgmma<16, Half, true>(D, matrix_descriptor(tile, 16, 1024), b, false);  // BUG
  WAIT_AND_SUM;
}

MISTAKE(kWrongArgument, barrier_number_16, ({1, 64}, kOut), float* out) {
  sync_named(16, 64);  // BUG
  out[threadIdx.x] = 0;
}

MISTAKE(kWrongArgument, barrier_of_48_threads, ({1, 64}, kOut), float* out) {
  if (threadIdx.x < 48) sync_named(1, 48);  // BUG
  out[threadIdx.x] = 0;
}

MISTAKE(kWrongArgument, barrier_counts_differ, ({1, 96}, kOut), float* out) {
  sync_named(1, threadIdx.x < 32 ? 64 : 96);  // BUG
  out[threadIdx.x] = 0;
}

MISTAKE(kDeadlock, barrier_with_a_warp_too_few, ({1, 64}, kOut), float* out) {
  if (threadIdx.x < 32) sync_named(1, 64);  // BUG
  out[threadIdx.x] = 0;
}

MISTAKE(kRace, writes_behind_its_arrival, ({1, 64}, kOut), float* out) {
  __shared__ float shared[32];
  if (threadIdx.x >= 32) {
    arrive_named(1, 64);
    shared[threadIdx.x - 32] = 1;  // BUG
  } else {
    sync_named(1, 64);
    out[threadIdx.x] = shared[threadIdx.x];  // BUG
  }
}

MISTAKE(kDeadlock, registers_over_the_pool, ({1, 384}, kOut), float* out) {
  take_registers<240>();  // BUG
  out[threadIdx.x] = 0;
}

MISTAKE(kWrongArgument, gives_more_than_it_has, ({1, 384}, kOut), float* out) {
  give_registers<240>();  // BUG
  out[threadIdx.x] = 0;
}

}  // namespace
}  // namespace flash::simt_corpus
