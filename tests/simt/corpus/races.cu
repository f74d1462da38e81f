// Data races: in shared memory and in device memory, within a warp, between warps, between blocks.
#include "common/cuda/launch.hpp"
#include "simt/corpus/corpus.hpp"

namespace flash::simt_corpus {
namespace {

using simt::FindingKind;

// Write, then read what a neighbour wrote.
__global__ void no_barrier_after_store(float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);  // BUG no_barrier_after_store
  out[threadIdx.x] = tile[63 - threadIdx.x];            // BUG no_barrier_after_store
}

// Read, then overwrite what a neighbour still reads.
__global__ void no_barrier_before_overwrite(float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = 1;
  __syncthreads();
  const float neighbour = tile[(threadIdx.x + 33) % 64];  // BUG no_barrier_before_overwrite
  tile[threadIdx.x] = 2;                                  // BUG no_barrier_before_overwrite
  out[threadIdx.x] = neighbour;
}

// The barrier at the end of a loop over tiles is missing: the next tile comes too early.
__global__ void tile_loop_one_barrier(const float* x, float* out, int tiles) {
  __shared__ float tile[64];
  float sum = 0;
  for (int t = 0; t < tiles; ++t) {
    tile[threadIdx.x] = x[t * 64 + threadIdx.x];             // BUG tile_loop_one_barrier
    __syncthreads();
    for (int j = 0; j < 64; ++j) sum += tile[j];             // BUG tile_loop_one_barrier
  }
  out[threadIdx.x] = sum;
}

// A reduction in a tree whose last steps are left to "the warp runs in lockstep".
__global__ void lockstep_reduction(float* out) {
  __shared__ float sums[32];
  sums[threadIdx.x] = 1;
  __syncthreads();
  for (int distance = 16; distance > 0; distance /= 2)
    if (static_cast<int>(threadIdx.x) < distance) sums[threadIdx.x] += sums[threadIdx.x + distance];  // BUG lockstep_reduction
  if (threadIdx.x == 0) out[0] = sums[0];
}

// The same, with volatile: it stops the compiler, not the race.
__global__ void volatile_reduction(float* out) {
  __shared__ volatile float sums[32];
  sums[threadIdx.x] = 1;
  __syncthreads();
  for (int distance = 16; distance > 0; distance /= 2)
    if (static_cast<int>(threadIdx.x) < distance) sums[threadIdx.x] = sums[threadIdx.x] + sums[threadIdx.x + distance];  // BUG volatile_reduction
  if (threadIdx.x == 0) out[0] = sums[0];
}

// A shuffle brings the lanes together and orders nothing in memory.
__global__ void shuffle_is_no_fence(float* out) {
  __shared__ float tile[32];
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);  // BUG shuffle_is_no_fence
  const float first = __shfl_sync(0xffffffffu, 1.0f, 0);
  out[threadIdx.x] = first + tile[31 - threadIdx.x];    // BUG shuffle_is_no_fence
}

// __syncwarp() orders a warp; here another warp reads.
__global__ void syncwarp_across_warps(float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);  // BUG syncwarp_across_warps
  __syncwarp();
  out[threadIdx.x] = tile[63 - threadIdx.x];            // BUG syncwarp_across_warps
}

// The mask of the __syncwarp() leaves out the upper half, which the lower half reads.
__global__ void syncwarp_half_mask(float* out) {
  __shared__ float tile[32];
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);  // BUG syncwarp_half_mask
  __syncwarp(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u);
  out[threadIdx.x] = tile[31 - threadIdx.x];            // BUG syncwarp_half_mask
}

// All threads write the same word; that all write the same value does not help.
__global__ void all_write_one(float* out) {
  __shared__ float scale;
  scale = 2;  // BUG all_write_one
  __syncthreads();
  out[threadIdx.x] = scale;
}

__global__ void dynamic_tile(float* out) {
  FLASH_DYNAMIC_SHARED(float, tile);
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);  // BUG dynamic_tile
  out[threadIdx.x] = tile[(threadIdx.x + 32) % 64];     // BUG dynamic_tile
}

// Two threads write the halves of one float: a write of 2 bytes next to a read of 4.
__global__ void narrow_write(unsigned* out) {
  __shared__ unsigned word[2];
  auto* const halves = reinterpret_cast<unsigned short*>(word);
  if (threadIdx.x < 4) halves[threadIdx.x] = static_cast<unsigned short>(threadIdx.x);  // BUG narrow_write
  if (threadIdx.x < 2) out[threadIdx.x] = word[threadIdx.x];                            // BUG narrow_write
}

// Threads of a block meet in device memory.
__global__ void global_neighbour(float* data) {
  data[threadIdx.x] += 1;                           // BUG global_neighbour
  if (threadIdx.x > 0) data[threadIdx.x - 1] += 1;  // BUG global_neighbour
}

// Each block adds to the same sum.
__global__ void blocks_add(float* sum) {
  if (threadIdx.x == 0) sum[0] += 1;  // BUG blocks_add
}

// Rows overlap by one: block b writes the first row of block b + 1.
__global__ void blocks_overlap(float* out) {
  if (threadIdx.x <= blockDim.x) out[blockIdx.x * 31 + threadIdx.x] = static_cast<float>(blockIdx.x);  // BUG blocks_overlap
}

// A block reads what another one wrote in the same launch.
__global__ void reads_other_block(float* data) {
  data[blockIdx.x * blockDim.x + threadIdx.x] = 1;                                              // BUG reads_other_block
  data[gridDim.x * blockDim.x + blockIdx.x * blockDim.x + threadIdx.x] = data[threadIdx.x];     // BUG reads_other_block
}

// One adds atomically, the other one reads plainly.
__global__ void atomic_and_plain(int* count, int* out) {
  atomicAdd(count, 1);               // BUG atomic_and_plain
  out[threadIdx.x] = *count;         // BUG atomic_and_plain
}

// The result is published without a fence: the atomic counter alone orders nothing.
__global__ void no_threadfence(float* partial, int* count, float* out) {
  if (threadIdx.x != 0) return;
  partial[blockIdx.x] = 1;                                                                 // BUG no_threadfence
  if (atomicAdd(count, 1) == static_cast<int>(gridDim.x) - 1) {
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];                            // BUG no_threadfence
    *out = sum;
  }
}

}  // namespace

std::vector<Specimen> races() {
  const auto with_out = [](const char* name, void (*kernel)(float*), unsigned blocks, unsigned threads, Index count) {
    return Specimen{name, FindingKind::kRace, [=] {
                      const auto out = zeros(count);
                      launch(name, kernel, {.grid = blocks, .block = threads, .shared_bytes = 256}, out.data());
                      return true;
                    }};
  };
  return {
      with_out("no_barrier_after_store", no_barrier_after_store, 1, 64, 64),
      with_out("no_barrier_before_overwrite", no_barrier_before_overwrite, 1, 64, 64),
      {"tile_loop_one_barrier", FindingKind::kRace,
       [] {
         const auto x = counting(192), out = zeros(64);
         launch("tile_loop_one_barrier", tile_loop_one_barrier, {.grid = 1, .block = 64}, x.data(), out.data(), 3);
         return true;
       }},
      with_out("lockstep_reduction", lockstep_reduction, 1, 32, 1),
      with_out("volatile_reduction", volatile_reduction, 1, 32, 1),
      with_out("shuffle_is_no_fence", shuffle_is_no_fence, 1, 32, 32),
      with_out("syncwarp_across_warps", syncwarp_across_warps, 1, 64, 64),
      with_out("syncwarp_half_mask", syncwarp_half_mask, 1, 32, 32),
      with_out("all_write_one", all_write_one, 1, 32, 32),
      with_out("dynamic_tile", dynamic_tile, 1, 64, 64),
      {"narrow_write", FindingKind::kRace,
       [] {
         const auto out = integer_zeros(2);
         launch("narrow_write", narrow_write, {.grid = 1, .block = 32}, reinterpret_cast<unsigned*>(out.data()));
         return true;
       }},
      with_out("global_neighbour", global_neighbour, 1, 64, 64),
      with_out("blocks_add", blocks_add, 3, 32, 1),
      with_out("blocks_overlap", blocks_overlap, 2, 32, 64),
      with_out("reads_other_block", reads_other_block, 2, 32, 128),
      {"atomic_and_plain", FindingKind::kRace,
       [] {
         const auto count = integer_zeros(1), out = integer_zeros(32);
         launch("atomic_and_plain", atomic_and_plain, {.grid = 1, .block = 32}, count.data(), out.data());
         return true;
       }},
      {"no_threadfence", FindingKind::kRace,
       [] {
         const auto partial = unwritten(4), out = zeros(1);
         const auto count = integer_zeros(1);
         launch("no_threadfence", no_threadfence, {.grid = 4, .block = 32}, partial.data(), count.data(), out.data());
         return true;
       }},
  };
}

}  // namespace flash::simt_corpus
