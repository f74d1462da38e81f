// Online softmax on the GPU: one warp a row. Each lane keeps a running (m, l) of the columns it
// sees; five shuffle steps merge the 32 pairs into the row's.
#include "common/checks.hpp"
#include "common/cuda/warp.hpp"
#include "part1_softmax_matmul/online_softmax.hpp"

namespace flash {
namespace {

constexpr int kWarpsPerBlock = 4;

// A running maximum, and the sum of exp(score - m) over the scores seen.
struct RunningSoftmax {
  float m = -INFINITY;
  float l = 0;

  // Both sums are brought to the larger maximum. Merging is associative, so that lanes may do it in
  // any order.
  __device__ void merge(float other_m, float other_l) {
    const float m_new = fmaxf(m, other_m);
    if (m_new == -INFINITY) {  // nothing seen on either side, unless it was NaN
      l += other_l;
      return;
    }
    l = l * expf(m - m_new) + other_l * expf(other_m - m_new);
    m = m_new;
  }
};

__global__ void online_softmax_kernel(TensorView<const float, 2> x, TensorView<float, 2> out) {
  const int lane = threadIdx.x % kWarpSize;
  const Index row = static_cast<Index>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarpSize;
  if (row >= x.extent(0))
    return;  // a whole warp leaves together, so the shuffles below stay complete

  RunningSoftmax softmax;
  for (Index j = lane; j < x.extent(1); j += kWarpSize) {
    const float score = x(row, j);
    // One score is a running softmax of its own: maximum `score`, sum exp(0) = 1. A masked column
    // has sum 0; NaN goes into l.
    softmax.merge(isnan(score) ? -INFINITY : score, isnan(score)         ? score
                                                    : score == -INFINITY ? 0
                                                                         : 1);
  }
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
    softmax.merge(__shfl_xor_sync(kAllLanes, softmax.m, distance),
                  __shfl_xor_sync(kAllLanes, softmax.l, distance));

  for (Index j = lane; j < x.extent(1); j += kWarpSize)
    out(row, j) = softmax.l == 0 ? 0 : expf(x(row, j) - softmax.m) / softmax.l;
}

}  // namespace

void online_softmax_cuda(TensorView<const float, 2> x, TensorView<float, 2> out, Stream stream) {
  check_elementwise_shapes(x.shape(), out.shape());
  const Index blocks = (x.extent(0) + kWarpsPerBlock - 1) / kWarpsPerBlock;
  launch("online_softmax", online_softmax_kernel,
         {.grid = grid_size(blocks), .block = kWarpsPerBlock * kWarpSize, .stream = stream}, x,
         out);
}

}  // namespace flash
