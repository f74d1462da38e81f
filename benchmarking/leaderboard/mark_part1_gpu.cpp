// The marks of part 1's board on a GPU.
#include "benchmarking/leaderboard/mark.hpp"
#include "common/cuda/device_tensor.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {

void fused_softmax_matmul_cuda(const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks&) {
  run_mark<DeviceTensor>(&Registry::softmax_matmul, DeviceKind::kGpu, pass);
}

}  // namespace flash
