// cp.async without the wait that it needs, ldmatrix at the wrong address; and their right use.
#include "common/cuda/async_copy.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/tensor_core.hpp"
#include "simt/corpus/corpus.hpp"

namespace flash::simt_corpus {
namespace {

using simt::FindingKind;

__global__ void copy_not_waited_for(const float* x, float* out) {
  __shared__ __align__(16) float tile[128];
  cp_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x);
  cp_async_commit();
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];  // BUG copy_not_waited_for
}

// Waits for all groups but the newest, and there is only one.
__global__ void waits_for_one_too_few(const float* x, float* out) {
  __shared__ __align__(16) float tile[128];
  cp_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x);
  cp_async_commit();
  cp_async_wait<1>();
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];  // BUG waits_for_one_too_few
}

__global__ void copy_not_committed(const float* x, float* out) {
  __shared__ __align__(16) float tile[128];
  cp_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x);
  cp_async_wait<0>();
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];  // BUG copy_not_committed
}

// Each thread waits for its own copies; what other threads copied needs a barrier as well.
__global__ void wait_without_barrier(const float* x, float* out) {
  __shared__ __align__(16) float tile[128];
  cp_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x);  // BUG wait_without_barrier
  cp_async_commit();
  cp_async_wait<0>();
  const float mine = tile[4 * threadIdx.x];
  __syncthreads();
  float sum = mine;
  for (int step = 0; step < 2; ++step) {
    cp_async_16(tile + 4 * threadIdx.x, x + 4 * threadIdx.x);  // BUG wait_without_barrier
    cp_async_commit();
    cp_async_wait<0>();
    sum += tile[(4 * threadIdx.x + 64) % 128];  // BUG wait_without_barrier
  }
  out[threadIdx.x] = sum;
}

__global__ void misaligned_copy(const float* x, float* out) {
  __shared__ __align__(16) float tile[160];
  cp_async_16(tile + 5 * threadIdx.x, x + 4 * threadIdx.x);  // BUG misaligned_copy
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}

__global__ void misaligned_ldmatrix(std::uint32_t* out) {
  __shared__ __align__(16) unsigned short tile[8 * 12];
  for (unsigned i = threadIdx.x; i < 96; i += 32) tile[i] = static_cast<unsigned short>(i);
  __syncwarp();
  std::uint32_t r[1];
  ldmatrix<1>(r, tile + 12 * (threadIdx.x % 8));  // BUG misaligned_ldmatrix
  out[threadIdx.x] = r[0];
}

__global__ void mma_in_half_a_warp(float* out) {
  float d[4] = {};
  const std::uint32_t a[4] = {}, b[2] = {};
  if (threadIdx.x < 16) mma_m16n8k16_half(d, a, b);  // BUG mma_in_half_a_warp
  out[threadIdx.x] = d[0];
}

// ---- right ---------------------------------------------------------------------------------------------------------------------

// Two stages: while one tile is used the next one is on its way; past the end of x, zeros.
__global__ void two_stages(const float* x, float* out, int tiles, int count) {
  __shared__ __align__(16) float stage[2][128];
  const auto start = [&](int tile) {
    const int first = tile * 128 + 4 * static_cast<int>(threadIdx.x), left = count - first;
    cp_async_16(&stage[tile % 2][4 * threadIdx.x], x + (left > 0 ? first : 0), left <= 0 ? 0 : left >= 4 ? 16 : 4 * left);
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

std::vector<Specimen> async() {
  const auto specimen = [](const char* name, FindingKind mistake, void (*kernel)(const float*, float*)) {
    return Specimen{name, mistake, [=] {
                      const auto x = counting(128), out = zeros(32);
                      launch(name, kernel, {.grid = 1, .block = 32}, x.data(), out.data());
                      return true;
                    }};
  };
  return {
      specimen("copy_not_waited_for", FindingKind::kAsyncCopy, copy_not_waited_for),
      specimen("waits_for_one_too_few", FindingKind::kAsyncCopy, waits_for_one_too_few),
      specimen("copy_not_committed", FindingKind::kAsyncCopy, copy_not_committed),
      specimen("wait_without_barrier", FindingKind::kRace, wait_without_barrier),
      specimen("misaligned_copy", FindingKind::kMisaligned, misaligned_copy),
      {"misaligned_ldmatrix", FindingKind::kMisaligned,
       [] {
         const auto out = integer_zeros(32);
         launch("misaligned_ldmatrix", misaligned_ldmatrix, {.grid = 1, .block = 32}, reinterpret_cast<std::uint32_t*>(out.data()));
         return true;
       }},
      {"mma_in_half_a_warp", FindingKind::kWarpMismatch,
       [] {
         const auto out = zeros(32);
         launch("mma_in_half_a_warp", mma_in_half_a_warp, {.grid = 1, .block = 32}, out.data());
         return true;
       }},
  };
}

std::vector<Specimen> async_right() {
  return {{"two_stages", {}, [] {
             const int count = 5 * 128 - 37;
             const auto x = counting(count), out = zeros(32);
             launch("two_stages", two_stages, {.grid = 1, .block = 32}, x.data(), out.data(), 5, count);
             const Tensor<float, 1> sums = out.to_host();
             for (Index i = 0; i < 32; ++i)
               if (sums(i) != static_cast<float>(count * (count - 1) / 2)) return false;
             return true;
           }}};
}

}  // namespace flash::simt_corpus
