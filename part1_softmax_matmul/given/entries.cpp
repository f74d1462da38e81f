// The passes that part 1 enters in the registry on a CPU: "unfused", which is given, and the task's
// function at three block sizes, from the library that the registry names.
#include "common/registry.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {

FLASH_ENTER(registry, name) {
  auto& passes = registry.softmax_matmul;
  passes.add({.name = "unfused",
              .run = {.float32 = [](const SoftmaxMatmul<float>& pass) { softmax_matmul(pass); }}});
  const auto task = registry.tasks.library<FusedCpuTask>();
  for (const Index block : {16, 32, 64})
    passes.add({.name = "fused_" + std::to_string(block),
                .run = {.float32 = [task, block](const SoftmaxMatmul<float>& pass) {
                  task->fused_softmax_matmul(pass, {block, block});
                }}});
}

}  // namespace flash
