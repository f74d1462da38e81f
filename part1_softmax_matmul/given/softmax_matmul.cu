// The unfused function on the GPU, as a framework runs it: one kernel writes the whole softmax P
// (batch, d1, d2) to device memory, then cuBLAS reads it back for the product.
#include "common/checks.hpp"
#include "common/cuda/cublas.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/cuda/warp.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {
namespace {

// One block of THREADS a slice along `axis`: maximum, then sum, then weights. The second and third
// pass find the scores in cache.
template <int THREADS>
__global__ void softmax_kernel(TensorView<const float, 3> x, TensorView<float, 3> p, int axis) {
  __shared__ float scratch[THREADS / kWarpSize];
  const int outer_axis = axis == 0 ? 1 : 0, inner_axis = axis == 2 ? 1 : 2;
  const Index slice = blockIdx.x;
  const Index outer = slice / x.extent(inner_axis), inner = slice % x.extent(inner_axis);
  const float* scores = x.data() + outer * x.stride(outer_axis) + inner * x.stride(inner_axis);
  float* weights = p.data() + outer * p.stride(outer_axis) + inner * p.stride(inner_axis);
  const Index count = x.extent(axis), x_step = x.stride(axis), p_step = p.stride(axis);

  float maximum = -INFINITY;
  for (Index j = threadIdx.x; j < count; j += THREADS) maximum = fmaxf(maximum, scores[j * x_step]);
  maximum = block_max<THREADS>(maximum, scratch);
  if (maximum == -INFINITY)
    maximum = 0;  // nothing visible: every exp below is exp(-inf) = 0, or NaN where x is

  float sum = 0;
  for (Index j = threadIdx.x; j < count; j += THREADS) sum += expf(scores[j * x_step] - maximum);
  sum = block_sum<THREADS>(sum, scratch);

  const float scale = sum == 0 ? 0 : 1 / sum;
  for (Index j = threadIdx.x; j < count; j += THREADS)
    weights[j * p_step] = expf(scores[j * x_step] - maximum) * scale;
}

}  // namespace

void softmax_matmul_cuda(const SoftmaxMatmul<float>& pass, int axis) {
  const auto& [x, v, out, stream] = pass;
  const auto [batch, d1, d2, d3] = check_softmax_matmul(pass);
  axis = checked_axis(axis, 3);
  const cublas::Matrices<const float> V{"v", v};
  const cublas::Matrices<float> O{"out", out};
  (void)V.leading_dimension();  // what cuBLAS refuses is refused before anything is launched
  (void)O.leading_dimension();

  DeviceTensor<float, 3> p({batch, d1, d2}, stream);
  if (d2 > 0) {
    const Index slices = batch * d1 * d2 / x.extent(axis);
    // A warp is enough for a short slice: with 256 threads, most would have nothing to do.
    constexpr int kFewThreads = kWarpSize, kManyThreads = 256;
    const bool is_short = x.extent(axis) <= 2 * kManyThreads;
    launch("softmax", is_short ? softmax_kernel<kFewThreads> : softmax_kernel<kManyThreads>,
           {.grid = grid_size(slices),
            .block = static_cast<unsigned>(is_short ? kFewThreads : kManyThreads),
            .stream = stream},
           x, p.view(), axis);
  }

  cublas::product<float, float>({"p", TensorView<const float, 3>(p.view())}, V, O, 1, stream);
}

}  // namespace flash
