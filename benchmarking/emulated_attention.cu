// A kernel in the style of part 3 for bench_emulator: tiled attention with an online softmax, 128 threads a block, 64 queries and 32
// keys a tile, four barriers a tile, two threads a query in the softmax, which share their row by a shuffle.
#include "benchmarking/emulated_attention.hpp"

#include "common/cuda/launch.hpp"

namespace flash {
namespace {

constexpr int kQueries = 64, kKeys = 32, kThreads = 128, kHeadDim = 64;
constexpr int kKeysPerThread = kKeys / 2, kColumnsPerThread = kHeadDim / 2;

__global__ void attention_kernel(const float* q, const float* k, const float* v, float* out, int sequence, float scale) {
  FLASH_DYNAMIC_SHARED(float, shared);
  float* const Q_smem = shared;                           // [kQueries][kHeadDim]
  float* const K_smem = Q_smem + kQueries * kHeadDim;     // [kKeys][kHeadDim]
  float* const V_smem = K_smem + kKeys * kHeadDim;        // [kKeys][kHeadDim]
  float* const P_smem = V_smem + kKeys * kHeadDim;        // [kQueries][kKeys]

  const int row = threadIdx.x / 2, half = threadIdx.x % 2, query0 = blockIdx.x * kQueries;
  const Index head = static_cast<Index>(blockIdx.y) * sequence * kHeadDim;

  for (int i = threadIdx.x; i < kQueries * kHeadDim; i += kThreads)
    Q_smem[i] = query0 + i / kHeadDim < sequence ? q[head + query0 * kHeadDim + i] : 0;

  float m = -INFINITY, l = 0, o[kColumnsPerThread] = {};
  for (int key0 = 0; key0 < sequence; key0 += kKeys) {
    __syncthreads();
    for (int i = threadIdx.x; i < kKeys * kHeadDim; i += kThreads) {
      const bool inside = key0 + i / kHeadDim < sequence;
      K_smem[i] = inside ? k[head + key0 * kHeadDim + i] : 0;
      V_smem[i] = inside ? v[head + key0 * kHeadDim + i] : 0;
    }
    __syncthreads();

    float S[kKeysPerThread], m_new = m;
    for (int j = 0; j < kKeysPerThread; ++j) {
      const int key = 2 * j + half;
      float sum = 0;
      for (int c = 0; c < kHeadDim; ++c) sum += Q_smem[row * kHeadDim + c] * K_smem[key * kHeadDim + c];
      S[j] = key0 + key < sequence ? sum * scale : -INFINITY;
      m_new = fmaxf(m_new, S[j]);
    }
    m_new = fmaxf(m_new, __shfl_xor_sync(0xffffffffu, m_new, 1));
    const float alpha = expf(m - m_new);
    float sum = 0;
    for (int j = 0; j < kKeysPerThread; ++j) {
      const float weight = expf(S[j] - m_new);
      P_smem[row * kKeys + 2 * j + half] = weight;
      sum += weight;
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    l = l * alpha + sum;
    m = m_new;
    __syncthreads();

    for (int c = 0; c < kColumnsPerThread; ++c) {
      float value = o[c] * alpha;
      for (int j = 0; j < kKeys; ++j) value += P_smem[row * kKeys + j] * V_smem[j * kHeadDim + 2 * c + half];
      o[c] = value;
    }
    __syncthreads();
  }
  if (query0 + row < sequence)
    for (int c = 0; c < kColumnsPerThread; ++c) out[head + (query0 + row) * kHeadDim + 2 * c + half] = o[c] / l;
}

}  // namespace

void emulated_attention(const float* q, const float* k, const float* v, float* out, int heads, int sequence) {
  launch("attention", attention_kernel,
         {.grid = dim3((sequence + kQueries - 1) / kQueries, heads),
          .block = kThreads,
          .shared_bytes = sizeof(float) * (kQueries * kHeadDim + 2 * kKeys * kHeadDim + kQueries * kKeys)},
         q, k, v, out, sequence, 0.125f);
}

}  // namespace flash
