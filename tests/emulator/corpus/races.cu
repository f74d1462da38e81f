// Data races: in shared memory and in device memory, within a warp, between warps, between blocks.
#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

// Write, then read what a neighbour wrote.
MISTAKE(kRace, no_barrier_after_store, ({1, 64}, zeros(64)), float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);          // BUG
  out[threadIdx.x] = static_cast<int>(tile[63 - threadIdx.x]);  // BUG
}

// Read, then overwrite what a neighbour still reads.
MISTAKE(kRace, no_barrier_before_overwrite, ({1, 64}, zeros(64)), float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = 1;
  __syncthreads();
  const float neighbour = tile[(threadIdx.x + 33) % 64];  // BUG
  tile[threadIdx.x] = 2;                                  // BUG
  out[threadIdx.x] = neighbour;
}

// The barrier at the end of a loop over tiles is missing: the next tile comes too early.
MISTAKE(kRace, tile_loop_one_barrier, ({1, 64}, counting(192), zeros(64), 3), const float* x,
        float* out, int tiles) {
  __shared__ float tile[64];
  float sum = 0;
  for (int t = 0; t < tiles; ++t) {
    tile[threadIdx.x] = x[t * 64 + threadIdx.x];  // BUG
    __syncthreads();
    for (int j = 0; j < 64; ++j) sum += tile[j];  // BUG
  }
  out[threadIdx.x] = sum;
}

// The store stands above the barrier, but is called after it: no loop, and no next round.
MISTAKE(kRace, store_called_later, ({1, 64}, zeros(64)), float* out) {
  __shared__ float tile[64];
  const auto store = [&](float value) { tile[threadIdx.x] = value; };  // BUG
  store(1);
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];  // BUG
  store(2);
}

// A reduction in a tree whose last steps are left to "the warp runs in lockstep", with volatile: it
// stops the compiler, not the race.
MISTAKE(kRace, volatile_reduction, ({1, 32}, zeros(1)), float* out) {
  __shared__ volatile float sums[32];
  sums[threadIdx.x] = 1;
  __syncthreads();
  for (int distance = 16; distance > 0; distance /= 2)
    if (static_cast<int>(threadIdx.x) < distance)
      sums[threadIdx.x] = sums[threadIdx.x] + sums[threadIdx.x + distance];  // BUG
  if (threadIdx.x == 0) out[0] = sums[0];
}

// A shuffle brings the lanes together and orders nothing in memory.
MISTAKE(kRace, shuffle_is_no_fence, ({1, 32}, zeros(32)), float* out) {
  __shared__ float tile[32];
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);  // BUG
  const float first = __shfl_sync(0xffffffffu, 1.0f, 0);
  out[threadIdx.x] = first + tile[31 - threadIdx.x];  // BUG
}

// __syncwarp() orders a warp; here another warp reads.
MISTAKE(kRace, syncwarp_across_warps, ({1, 64}, zeros(64)), float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);  // BUG
  __syncwarp();
  out[threadIdx.x] = tile[63 - threadIdx.x];  // BUG
}

// The mask of the __syncwarp() leaves out the upper half, which the lower half reads.
MISTAKE(kRace, syncwarp_half_mask, ({1, 32}, zeros(32)), float* out) {
  __shared__ float tile[32];
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);  // BUG
  __syncwarp(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u);
  out[threadIdx.x] = tile[31 - threadIdx.x];  // BUG
}

// All threads write the same word; that all write the same value does not help.
MISTAKE(kRace, all_write_one, ({1, 32}, zeros(32)), float* out) {
  __shared__ float scale;
  scale = 2;  // BUG
  __syncthreads();
  out[threadIdx.x] = scale;
}

// Two threads write the halves of one float: a write of 2 bytes next to a read of 4.
MISTAKE(kRace, narrow_write, ({1, 32}, zeros(2)), unsigned* out) {
  __shared__ unsigned word[2];
  auto* const halves = reinterpret_cast<unsigned short*>(word);
  if (threadIdx.x < 4) halves[threadIdx.x] = static_cast<unsigned short>(threadIdx.x);  // BUG
  if (threadIdx.x < 2) out[threadIdx.x] = word[threadIdx.x];                            // BUG
}

// Threads of a block meet in device memory.
MISTAKE(kRace, global_neighbour, ({1, 64}, zeros(64)), float* data) {
  data[threadIdx.x] += 1;                           // BUG
  if (threadIdx.x > 0) data[threadIdx.x - 1] += 1;  // BUG
}

// Rows overlap by one: block b writes the first row of block b + 1.
MISTAKE(kRace, blocks_overlap, ({2, 32}, zeros(64)), float* out) {
  if (threadIdx.x <= blockDim.x)
    out[blockIdx.x * 31 + threadIdx.x] = static_cast<float>(blockIdx.x);  // BUG
}

// One adds atomically, the other one reads plainly.
MISTAKE(kRace, atomic_and_plain, ({1, 32}, zeros(1), zeros(32)), int* count, int* out) {
  atomicAdd(count, 1);        // BUG
  out[threadIdx.x] = *count;  // BUG
}

// One thread sets the counter and counts itself, while the others count already.
MISTAKE(kRace, counts_from_a_start, ({1, 64}, zeros(1)), int* out) {
  __shared__ int count;
  if (threadIdx.x == 0) count = 0;  // BUG
  atomicAdd(&count, 1);             // BUG
  __syncthreads();
  if (threadIdx.x == 0) *out = count;
}

// One line reads words plainly. An atomicCAS() of some of them excuses no others.
MISTAKE(kRace, read_beside_a_compared_word, ({1, 64}, zeros(64), zeros(64)), int* words, int* out) {
  for (unsigned n = 0; n <= gridDim.x; ++n) {
    int* const word = &words[(threadIdx.x + 32 * n) % 64];
    out[threadIdx.x] = *word;  // BUG
    if (n == 0 && threadIdx.x < 32) atomicCAS(word, 0, 1);
    if (n == 0 && threadIdx.x >= 32) atomicExch(word, 1);  // BUG
  }
}

// The result is published without a fence: the atomic counter alone orders nothing.
MISTAKE(kRace, no_threadfence, ({4, 32}, unwritten(4), zeros(1), zeros(1)), float* partial,
        int* count, float* out) {
  if (threadIdx.x != 0) return;
  partial[blockIdx.x] = 1;  // BUG
  if (atomicAdd(count, 1) == static_cast<int>(gridDim.x) - 1) {
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];  // BUG
    *out = sum;
  }
}

// A fence publishes what is before it.
MISTAKE(kRace, fence_before_the_write, ({4, 32}, unwritten(128), zeros(1), zeros(1)),
        float* partial, int* count, float* out) {
  __threadfence();
  partial[32 * blockIdx.x + threadIdx.x] = 1;  // BUG
  __syncthreads();
  if (threadIdx.x > 0 || atomicAdd(count, 1) < static_cast<int>(gridDim.x) - 1) return;
  float sum = 0;
  for (int i = 0; i < 128; ++i) sum += partial[i];  // BUG
  *out = sum;
}

// Two warps wait for what the block that came first writes, and the third one does not.
MISTAKE(kRace, one_warp_does_not_wait_for_a_block, ({2, 96}, zeros(1), zeros(2), zeros(96)),
        float* data, int* counts, float* out) {
  __shared__ int number;
  if (threadIdx.x == 0) number = atomicAdd(&counts[0], 1);
  __syncthreads();
  if (number == 0) {
    if (threadIdx.x > 0) return;
    *data = 1;  // BUG
    __threadfence();
    atomicExch(&counts[1], 1);
    return;
  }
  if (threadIdx.x < 64) {
    while (atomicAdd(&counts[1], 0) == 0) continue;
    __threadfence();
  }
  out[threadIdx.x] = *data;  // BUG
}

}  // namespace
}  // namespace flash::simt_corpus
