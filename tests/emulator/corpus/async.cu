// cp.async without the wait that it needs, ldmatrix at the wrong address; and their right use.
#include "common/cuda/async_copy.hpp"
#include "common/cuda/tensor_core.hpp"
#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

// Waits for all groups but the newest, and there is only one.
MISTAKE(kAsyncCopy, waits_for_one_too_few, ({1, 32}, counting(128), zeros(32)), const float* x,
        float* out) {
  __shared__ __align__(16) float tile[128];
  cp_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x);
  cp_async_commit();
  cp_async_wait<1>();
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];  // BUG
}

MISTAKE(kAsyncCopy, copy_not_committed, ({1, 32}, counting(128), zeros(32)), const float* x,
        float* out) {
  __shared__ __align__(16) float tile[128];
  cp_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x);
  cp_async_wait<0>();
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];  // BUG
}

// Each thread waits for its own copies; what other threads copied needs a barrier as well.
MISTAKE(kRace, wait_without_barrier, ({1, 32}, counting(128), zeros(32)), const float* x,
        float* out) {
  __shared__ __align__(16) float tile[128];
  cp_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x);  // BUG
  cp_async_commit();
  cp_async_wait<0>();
  const float mine = tile[4 * threadIdx.x];
  __syncthreads();
  float sum = mine;
  for (int step = 0; step < 2; ++step) {
    cp_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x);  // BUG
    cp_async_commit();
    cp_async_wait<0>();
    sum += tile[(4 * threadIdx.x + 64) % 128];  // BUG
  }
  out[threadIdx.x] = sum;
}

MISTAKE(kMisaligned, misaligned_copy, ({1, 32}, counting(128), zeros(32)), const float* x,
        float* out) {
  __shared__ __align__(16) float tile[160];
  cp_async_16(tile + 5 * threadIdx.x, x + 4 * threadIdx.x);  // BUG
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}

MISTAKE(kMisaligned, misaligned_ldmatrix, ({1, 32}, zeros(32)), std::uint32_t* out) {
  __shared__ __align__(16) unsigned short tile[32 * 12];
  for (unsigned i = threadIdx.x; i < 384; i += 32) tile[i] = static_cast<unsigned short>(i);
  __syncwarp();
  std::uint32_t r[4];
  ldmatrix(r, tile + 12 * threadIdx.x);  // BUG
  out[threadIdx.x] = r[0];
}

MISTAKE(kWarpMismatch, mma_in_half_a_warp, ({1, 32}, zeros(32)), float* out) {
  float d[4] = {};
  const std::uint32_t a[4] = {}, b[2] = {};
  if (threadIdx.x < 16) mma_m16n8k16_half(d, a, b);  // BUG
  out[threadIdx.x] = d[0];
}

// Two stages: while one tile is used the next one is on its way; past the end of x, zeros.
RIGHT(two_stages, ({1, 32}, IS(603 * 602 / 2), counting(603), result(32), 5, 603), const float* x,
      float* out, int tiles, int count) {
  __shared__ __align__(16) float stage[2][128];
  const auto start = [&](int tile) {
    const int first = tile * 128 + 4 * static_cast<int>(threadIdx.x), left = count - first;
    cp_async_16(&stage[tile % 2][4 * threadIdx.x], x + (left > 0 ? first : 0),
                left <= 0   ? 0
                : left >= 4 ? 16
                            : 4 * left);
    cp_async_commit();
  };
  start(0);
  float sum = 0;
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) {
      start(tile + 1);
      cp_async_wait<1>();
    } else {
      cp_async_wait<0>();
    }
    __syncthreads();
    for (int i = 0; i < 128; ++i) sum += stage[tile % 2][i];
    __syncthreads();
  }
  out[threadIdx.x] = sum;
}

}  // namespace
}  // namespace flash::simt_corpus
