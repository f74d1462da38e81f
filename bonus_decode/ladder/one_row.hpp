// What rungs 1 and 2 share: a thread block attends with one row of q to some of the keys.
#pragma once

#include <cmath>

#include "bonus_decode/given/decode_tile.hpp"
#include "common/registry.hpp"

namespace flash::decode_row {

constexpr int kWarps = 8, kThreads = kWarps * kWarpSize;
constexpr int kAtOnce = 4;  // keys of a warp: their loads are on their way together

// An online softmax over some keys, of one column: m in base 2, o is not divided by l yet.
struct Sums {
  float m = -INFINITY, l = 0, o = 0;
};
struct Result {
  float out, lse;
};

// Merges sums(0) to sums(count - 1).
template <class SumsOf>
__device__ __forceinline__ Result merged(int count, SumsOf sums) {
  Sums all;
  for (int n = 0; n < count; ++n) all.m = fmaxf(all.m, sums(n).m);
  for (int n = 0; n < count; ++n) {
    const Sums part = sums(n);
    const float weight = part.m == -INFINITY ? 0 : exp2f(part.m - all.m);
    all.l += weight * part.l;
    all.o += weight * part.o;
  }
  return {all.l == 0 ? 0 : all.o / all.l, (all.m + log2f(all.l)) * kLn2};
}

// Row `row` of (batch, heads, queries).
struct Row {
  Index b, h, i;
  __device__ Row(const DecodeShape& shape, Index row)
      : b(row / shape.queries / shape.heads),
        h(row / shape.queries % shape.heads),
        i(row % shape.queries) {}
};

// Attends with the row to those of the keys begin to end - 1 that it sees, and calls
// store(column, Result) in a thread for each column. A lane has every 32nd column; a warp has 4
// keys at a time.
template <int kHeadDim, class T, class Store>
__device__ __forceinline__ void attend(const Decode<T>& pass, float scale, const Row& row,
                                       int begin, int end, Store store) {
  constexpr int kColumns = kHeadDim / kWarpSize;
  __shared__ float o_smem[kWarps][kHeadDim], m_smem[kWarps], l_smem[kWarps];
  const DecodeShape shape = pass.shape();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int page_size = static_cast<int>(shape.page_size);
  const Index kv_head = row.h / shape.group();
  const int seen = min(end, static_cast<int>(pass.lengths(row.b) - shape.queries + row.i + 1));

  float q[kColumns], o[kColumns] = {}, m = -INFINITY, l = 0;
  FLASH_UNROLL
  for (int n = 0; n < kColumns; ++n)
    q[n] = to_float(pass.q(row.b, row.h, row.i, n * kWarpSize + lane)) * (scale * kLog2E);

  for (int j0 = begin + warp * kAtOnce; j0 < seen; j0 += kWarps * kAtOnce) {
    const int keys = min(kAtOnce, seen - j0);
    float scores[kAtOnce] = {}, v[kAtOnce][kColumns];
    FLASH_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      if (u >= keys) continue;
      const Index page = pass.block_table(row.b, (j0 + u) / page_size), j = (j0 + u) % page_size;
      FLASH_UNROLL
      for (int n = 0; n < kColumns; ++n) {
        const int c = n * kWarpSize + lane;
        scores[u] = fmaf(q[n], to_float(pass.k(page, j, kv_head, c)), scores[u]);
        v[u][n] = to_float(pass.v(page, j, kv_head, c));
      }
    }
    float m_new = m;
    FLASH_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      scores[u] = u < keys ? warp_sum(scores[u]) : -INFINITY;
      m_new = fmaxf(m_new, scores[u]);
    }
    const float alpha = m == m_new ? 1 : exp2f(m - m_new);
    m = m_new;
    // The 4 keys are added up first: 131072 keys, one after the other, lose too much of a float.
    float weights = 0, sums[kColumns] = {};
    FLASH_UNROLL
    for (int u = 0; u < kAtOnce; ++u) {
      if (u >= keys) continue;
      const float weight = scores[u] == -INFINITY ? 0 : exp2f(scores[u] - m);
      weights += weight;
      FLASH_UNROLL
      for (int n = 0; n < kColumns; ++n) sums[n] = fmaf(weight, v[u][n], sums[n]);
    }
    l = fmaf(l, alpha, weights);
    FLASH_UNROLL
    for (int n = 0; n < kColumns; ++n) o[n] = fmaf(o[n], alpha, sums[n]);
  }

  FLASH_UNROLL
  for (int n = 0; n < kColumns; ++n) o_smem[warp][n * kWarpSize + lane] = o[n];
  if (lane == 0) m_smem[warp] = m, l_smem[warp] = l;
  __syncthreads();
  if (const int c = static_cast<int>(threadIdx.x); c < kHeadDim)
    store(c, merged(kWarps, [&](int n) { return Sums{m_smem[n], l_smem[n], o_smem[n][c]}; }));
}

// Enters a rung: launch(config, pass, rows of q, scale) runs it on what it takes.
template <class Launch>
void enter(Registry& registry, const std::string& name, Launch launch) {
  const auto run = [launch]<class T>(const Decode<T>& pass) {
    const DecodeShape shape = check_decode(pass);
    check_supported(decode::why_not(shape));
    const double scale = attention_scale({.scale = pass.scale}, shape.head_dim);
    decode::with_config<T>(shape.head_dim, [&](auto config) {
      launch(config, pass, shape.batch * shape.heads * shape.queries, static_cast<float>(scale));
    });
  };
  registry.decode.add({.name = name,
                       .device = DeviceKind::kGpu,
                       .run = {.float32 = run, .float16 = run, .bfloat16 = run},
                       .unsupported = [](auto& problem) { return decode::why_not(problem.shape); },
                       .best = false});
}

}  // namespace flash::decode_row
