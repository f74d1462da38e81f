// The passes that part 3 enters in the registry: "flash", the task's forward pass from the
// library that the registry names, in its fastest configuration; and "plain", the backward pass
// that is given.
#include "common/checks.hpp"
#include "common/registry.hpp"
#include "part3_flash_cuda/plain_backward.hpp"
#include "part3_flash_cuda/tuning.hpp"

namespace flash {

FLASH_ENTER(registry, name) {
  const auto tuned = [task = registry.tasks.library<FlashForwardCudaTask>()]<class T>(
                         const AttentionForward<T>& pass) {
    flash_attention_forward_tuned_cuda(task->of<T>(), pass);
  };
  registry.forward.add({.name = "flash",
                        .device = DeviceKind::kGpu,
                        .run = {.float32 = tuned, .float16 = tuned, .bfloat16 = tuned},
                        .unsupported = [](const AttentionProblem& problem) {
                          return why_above("head_dim", problem.shape.head_dim, kFlashMaxHeadDim);
                        }});
  registry.backward.add({.name = "plain",
                         .device = DeviceKind::kGpu,
                         .run = {.float32 = plain_attention_backward_cuda<float>,
                                 .float16 = plain_attention_backward_cuda<Half>,
                                 .bfloat16 = plain_attention_backward_cuda<BFloat16>}});
}

}  // namespace flash
