// The same on a GPU as entries.cpp on a CPU; the emulator has no cuBLAS.
#include "common/registry.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {
namespace {

// cuBLAS takes one leading dimension: columns have to lie side by side, and rows must not overlap.
std::string strides_cublas_refuses(const SoftmaxMatmulProblem& problem) {
  const auto& [batch, d1, d2, d3] = problem.shape;
  for (const TensorLayout& tensor : problem.tensors) {
    if (tensor.name == "x") continue;  // the softmax kernel reads it
    const Index rows = tensor.name == "v" ? d2 : d1, row = tensor.strides[1],
                column = tensor.strides[2];
    if ((d3 > 1 && column != 1) || (rows > 1 && row < d3))
      return "rows and columns of " + tensor.name + " are " + std::to_string(row) + " and " +
             std::to_string(column) +
             " elements apart; for cuBLAS columns must be 1 and rows at least " +
             std::to_string(d3);
  }
  return "";
}

}  // namespace

FLASH_ENTER(registry, name) {
  auto& passes = registry.softmax_matmul;
  passes.add(
      {.name = "unfused",
       .device = DeviceKind::kGpu,
       .run = {.float32 = [](const SoftmaxMatmul<float>& pass) { softmax_matmul_cuda(pass); }},
       .unsupported = strides_cublas_refuses});
  const auto task = registry.tasks.library<FusedCudaTask>();
  for (const Index block : {16, 32, 64})
    passes.add({.name = "fused_" + std::to_string(block),
                .device = DeviceKind::kGpu,
                .run = {.float32 = [task, block](const SoftmaxMatmul<float>& pass) {
                  task->fused_softmax_matmul_cuda(pass, {block, block});
                }}});
}

}  // namespace flash
