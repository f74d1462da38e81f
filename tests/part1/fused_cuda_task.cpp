// Task part1.fused_cuda: the cases of task 1.A on the CUDA function.
#include "harness/device_copy.hpp"
#include "part1/softmax_matmul_cases.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash::harness {

TaskUnderTest task_under_test() {
  const auto run = [](const part1::SoftmaxMatmulCase& problem, PaddedTensor& x, PaddedTensor& v, PaddedTensor& out) {
    DeviceCopy device_x(x), device_v(v), device_out(out);
    const std::size_t before = device::memory_in_use();
    device::reset_peak_memory();
    fused_softmax_matmul_cuda(device_x.view(), device_v.view(), device_out.view(), problem.block_1, problem.block_2);
    device::synchronize();
    const std::size_t extra_bytes = device::peak_memory() - before;
    device_x.copy_back();
    device_v.copy_back();
    device_out.copy_back();
    return extra_bytes;
  };
  auto cases = part1::graded_softmax_matmul(run);
  // One for GPUs only: more batches than a grid is tall or deep (65535).
  const part1::SoftmaxMatmulCase tall{.name = "more batches than a grid is tall: 65600 x 1 x 3 x 1", .batch = 65600, .d2 = 3};
  cases.push_back({tall.name, 1, [tall, run](std::uint64_t seed) { return part1::judge(tall, seed, run); }});
  return {.id = "part1.fused_cuda", .needs_gpu = true, .has_gpu = [] { return device::count() > 0; }, .cases = std::move(cases)};
}

}  // namespace flash::harness
