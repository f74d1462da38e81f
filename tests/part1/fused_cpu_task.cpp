// Task part1.fused_cpu: the cases of task 1.A on the CPU function.
#include "common/oracle.hpp"
#include "harness/far_apart.hpp"
#include "part1/softmax_matmul_cases.hpp"

namespace flash::part1 {
namespace {

Verdict far_apart(std::uint64_t seed) {
  return harness::with_far_apart([seed](harness::FarApart& memory) {
    constexpr SoftmaxMatmulShape shape{2, 20, 23, 6};
    const auto x = make_input<3>(shape.of_x(), kNormal, seed),
               v = make_input<3>(shape.of_v(), kNormal, seed + 1);
    const auto out = memory.tensor<3>(shape.of_out());
    fused_softmax_matmul({memory.tensor(x), memory.tensor(v), out});
    const Verdict verdict = judge_sums(out, softmax_matmul_oracle(x.view(), v.view()),
                                       softmax_matmul_magnitude(x.view(), v.view()),
                                       softmax_matmul_bound(shape.d2, 5), shape.d2, "row", 0);
    return verdict.pass ? "" : verdict.text;
  });
}

}  // namespace
}  // namespace flash::part1

flash::harness::TaskUnderTest flash::harness::task_under_test() {
  TaskUnderTest task{
      .id = "part1.fused_cpu",
      .cases = part1::graded_softmax_matmul(part1::on_host(fused_softmax_matmul), false)};
  if (in_process())
    task.cases.push_back({"batches 2147483648 elements apart", "strides", part1::far_apart});
  return task;
}
