// Task part1.fused_cpu: the cases of task 1.A on the CPU function.
#include "harness/cases/far_apart.hpp"
#include "part1/softmax_matmul_cases.hpp"

namespace flash::harness {

TaskUnderTest fused_cpu_task() {
  TaskUnderTest task{
      .id = "part1.fused_cpu",
      .cases = part1::graded_softmax_matmul(part1::on_host(fused_softmax_matmul), false)};
  task.cases.push_back(
      part1::far_apart([](const SoftmaxMatmul<float>& pass) { fused_softmax_matmul(pass); }));
  return task;
}

}  // namespace flash::harness
