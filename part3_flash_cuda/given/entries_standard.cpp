// The pair "standard" of the registry, on a GPU: the emulator has no cuBLAS.
#include <memory>

#include "common/cuda/device_tensor.hpp"
#include "common/registry.hpp"
#include "part3_flash_cuda/standard_attention.hpp"

namespace flash {
namespace {

template <class T>
void forward(const AttentionForward<T>& pass, PassMemory& memory) {
  const AttentionShape shape = check_attention(pass);
  memory.kept = nullptr;  // never two of P at a time
  const auto p = std::make_shared<DeviceTensor<T, 4>>(
      Shape<4>{shape.batch, shape.heads, shape.queries, shape.keys}, pass.stream);
  memory.kept = p;
  memory.kept_bytes = p->bytes();
  standard_attention_forward_cuda(pass, p->view());
}

template <class T>
void backward(const AttentionBackward<T>& pass, PassMemory& memory) {
  const auto& p = *static_cast<const DeviceTensor<T, 4>*>(memory.kept.get());
  standard_attention_backward_cuda<T>(pass, p.view());
}

// cuBLAS takes all tensors but lse.
std::string unsupported(const AttentionProblem& problem) {
  for (const TensorLayout& tensor : problem.tensors) {
    if (tensor.name == "lse") continue;
    const bool of_keys = tensor.name.back() == 'k' || tensor.name.back() == 'v';
    const Index rows = of_keys ? problem.shape.keys : problem.shape.queries,
                columns = problem.shape.head_dim;
    const Index row_stride = tensor.strides[2], column_stride = tensor.strides[3];
    if ((columns > 1 && column_stride != 1) || (rows > 1 && row_stride < columns))
      return tensor.name + " has strides of " + std::to_string(row_stride) + " and " +
             std::to_string(column_stride) +
             " in its last two axes; cuBLAS needs a contiguous last axis and rows that do not "
             "overlap";
  }
  return "";
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.forward.add(
      {.name = "standard",
       .device = DeviceKind::kGpu,
       .run = {.float32 = forward<float>, .float16 = forward<Half>, .bfloat16 = forward<BFloat16>},
       .unsupported = unsupported});
  registry.backward.add({.name = "standard",
                         .device = DeviceKind::kGpu,
                         .run = {.float32 = backward<float>,
                                 .float16 = backward<Half>,
                                 .bfloat16 = backward<BFloat16>},
                         .unsupported = unsupported,
                         .only_as_pair = true});
}

}  // namespace flash
