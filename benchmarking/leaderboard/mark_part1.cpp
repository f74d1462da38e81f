// The marks of part 1's board.
#include "benchmarking/leaderboard/mark.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {

void fused_softmax_matmul(const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks&) {
  run_mark<Tensor>(&Registry::softmax_matmul, DeviceKind::kCpu, pass);
}

}  // namespace flash
