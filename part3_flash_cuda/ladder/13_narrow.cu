// Rung 13: float32 with heads of at most 4 columns and few rows.
//
// The solution gives 128 queries to a block and 64 keys to a step. With 200 queries in all, two
// blocks run, one step after the other, and the rest of the GPU is idle.
//
// New: each query has a warp. Its lanes take the keys in turns, and each goes through its own with
// an online softmax, in registers: a row of K is so short that a lane loads it alone. The 32 parts
// are merged once at the end, by part 1's algebra. It needs no shared memory and no barrier, and
// takes any strides.
//
// The bottleneck is latency: of the launch, of a few loads, and of the merge's shuffles. Measured
// on an H200, one head of 1 column, milliseconds between two events, of which an empty pass takes
// 0.008: 200 keys 0.014, standard attention 0.020, the solution 0.039; 2048 keys 0.030, 0.042 and
// 0.208. With wider heads this is slow, because each load of a warp then touches 32 rows: 32 heads
// of 16 columns and 256 keys took 0.177, the solution 0.042.
#include "part3_flash_cuda/flash_attention_cuda.hpp"
#include "part3_flash_cuda/ladder/narrow.hpp"

namespace flash::narrow {
namespace {

template <int kColumns>
__global__ void __launch_bounds__(kThreads)
    narrow_kernel(TensorView<const float, 4> q, TensorView<const float, 4> k,
                  TensorView<const float, 4> v, TensorView<float, 4> out, TensorView<float, 3> lse,
                  float scale_in_base_2, bool causal) {
  const AttentionShape shape{q.extent(0), q.extent(1), q.extent(2), k.extent(2), q.extent(3)};
  const Index row = static_cast<Index>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize,
              i = row % shape.queries, h = row / shape.queries % shape.heads,
              b = row / shape.queries / shape.heads;
  if (b >= shape.batch) return;  // the whole warp
  const Row<kColumns> Q(q, b, h, i);
  const Index seen = shape.visible_keys(i, causal);

  Row<kColumns> O;
  float m = -INFINITY, l = 0;
  for (Index j = threadIdx.x % kWarpSize; j < seen; j += kWarpSize) {
    const float S = Q.times(Row<kColumns>(k, b, h, j)) * scale_in_base_2;
    const Row<kColumns> V(v, b, h, j);
    const float m_new = fmaxf(m, S), base = m_new == -INFINITY ? 0 : m_new;
    const float alpha = exp2f(m - base), P = exp2f(S - base);
    m = m_new;
    l = l * alpha + P;
    FLASH_UNROLL
    for (int c = 0; c < kColumns; ++c) O.x[c] = O.x[c] * alpha + P * V.x[c];
  }

  const float largest = warp_max(m), base = largest == -INFINITY ? 0 : largest,
              weight = exp2f(m - base), sum = warp_sum(l * weight);
  FLASH_UNROLL
  for (int c = 0; c < kColumns; ++c) O.x[c] *= weight;
  O.store_sum(out, b, h, i, sum == 0 ? 0 : 1 / sum);
  if (threadIdx.x % kWarpSize == 0) lse(b, h, i) = (base + log2f(sum)) * kLn2;
}

void forward(const AttentionForward<float>& pass) {
  const AttentionShape shape = check_attention(pass);
  const auto scale = static_cast<float>(attention_scale(pass.options, shape.head_dim) * kLog2E);
  with_columns(shape.head_dim, [&]<int kColumns>(Columns<kColumns>) {
    const Index rows = shape.batch * shape.heads * shape.queries;
    launch(
        "narrow", narrow_kernel<kColumns>,
        {.grid = grid_size((rows + kWarps - 1) / kWarps), .block = kThreads, .stream = pass.stream},
        pass.q, pass.k, pass.v, pass.out, pass.lse, scale, pass.options.causal);
  });
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.forward.add({.name = name,
                        .device = DeviceKind::kGpu,
                        .run = {.float32 = forward},
                        .unsupported = why_not,
                        .best_for = is_best});
}

}  // namespace flash::narrow
