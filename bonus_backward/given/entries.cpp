// The pass that the bonus enters in the registry: "flash", the task's tiled backward pass, of
// whichever of skeleton and solution the program is linked with.
#include "bonus_backward/given/backward_launch.hpp"
#include "common/registry.hpp"

namespace flash {

FLASH_ENTER(registry, name) {
  registry.backward.add({.name = "flash",
                         .device = DeviceKind::kGpu,
                         .run = {.float32 = flash_attention_backward_cuda<float>,
                                 .float16 = flash_attention_backward_cuda<Half>,
                                 .bfloat16 = flash_attention_backward_cuda<BFloat16>},
                         .unsupported = [](const AttentionProblem& problem) {
                           return backward::why_not(problem.shape);
                         }});
}

}  // namespace flash
