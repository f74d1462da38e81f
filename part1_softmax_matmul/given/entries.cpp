// The passes that part 1 enters in the registry: "unfused", which is given, and the tasks'
// functions at three block sizes, from the libraries that the registry names.
#include "common/registry.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {
namespace {

#if FLASH_HAVE_CUDA
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
#endif

}  // namespace

FLASH_ENTER(registry, name) {
  auto& passes = registry.softmax_matmul;
  const auto add_fused = [&](DeviceKind device, auto fused) {
    for (const Index block : {16, 32, 64})
      passes.add({.name = "fused_" + std::to_string(block),
                  .device = device,
                  .run = {.float32 = [fused, block](const SoftmaxMatmul<float>& pass) {
                    fused(pass, SoftmaxMatmulBlocks{block, block});
                  }}});
  };
  passes.add({.name = "unfused",
              .run = {.float32 = [](const SoftmaxMatmul<float>& pass) { softmax_matmul(pass); }}});
  add_fused(DeviceKind::kCpu, [task = registry.tasks.library<FusedCpuTask>()](const auto&... of) {
    task->fused_softmax_matmul(of...);
  });
#if FLASH_HAVE_CUDA
  passes.add(
      {.name = "unfused",
       .device = DeviceKind::kGpu,
       .run = {.float32 = [](const SoftmaxMatmul<float>& pass) { softmax_matmul_cuda(pass); }},
       .unsupported = strides_cublas_refuses});
  add_fused(DeviceKind::kGpu, [task = registry.tasks.library<FusedCudaTask>()](const auto&... of) {
    task->fused_softmax_matmul_cuda(of...);
  });
#endif
}

}  // namespace flash
