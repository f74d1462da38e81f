// Task part1.fused_cpu: the cases of task 1.A on the CPU function.
#include "common/memory_meter.hpp"
#include "part1/softmax_matmul_cases.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash::harness {

TaskUnderTest task_under_test() {
  const auto run = [](const part1::SoftmaxMatmulCase& problem, PaddedTensor& x, PaddedTensor& v, PaddedTensor& out) {
    return host_memory::extra_bytes_of(
        [&] { fused_softmax_matmul(x.view(), v.view(), out.view(), problem.block_1, problem.block_2); });
  };
  return {.id = "part1.fused_cpu", .cases = part1::graded_softmax_matmul(run)};
}

}  // namespace flash::harness
