// The pass that the bonus enters in the registry: "flash", the task's tiled backward pass,
// from the library that the registry names.
#include "bonus_backward/given/backward_launch.hpp"
#include "common/registry.hpp"

namespace flash {

FLASH_ENTER(registry, name) {
  const auto flash = [task = registry.tasks.library<FlashBackwardCudaTask>()]<class T>(
                         const AttentionBackward<T>& pass) {
    task->of<T>().flash_attention_backward_cuda(pass);
  };
  registry.backward.add({.name = "flash",
                         .device = DeviceKind::kGpu,
                         .run = {.float32 = flash, .float16 = flash, .bfloat16 = flash},
                         .unsupported = [](const AttentionProblem& problem) {
                           return backward::why_not(problem.shape);
                         }});
}

}  // namespace flash
