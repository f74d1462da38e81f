// Task part1.fused_cpu: the cases of task 1.A on the CPU function.
#include "part1/softmax_matmul_cases.hpp"

flash::harness::TaskUnderTest flash::harness::task_under_test() {
  return {.id = "part1.fused_cpu",
          .cases = part1::graded_softmax_matmul(part1::on_host(fused_softmax_matmul))};
}
