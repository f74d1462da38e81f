// The pass that the decoding part enters in the registry: "flash", the task's, from the library
// that the registry names.
#include "bonus_decode/given/problems.hpp"
#include "common/registry.hpp"

namespace flash {

FLASH_ENTER(registry, name) {
  const auto flash = [task = registry.tasks.library<FlashDecodeCudaTask>()]<class T>(
                         const Decode<T>& pass) { task->of<T>().flash_decode_cuda(pass); };
  registry.decode.add({.name = "flash",
                       .device = DeviceKind::kGpu,
                       .run = {.float32 = flash, .float16 = flash, .bfloat16 = flash},
                       .unsupported = [](const DecodeProblem& problem) {
                         const std::string why = decode::why_not(problem.shape);
                         return why.empty() ? why_not_in_chunks(problem, 16) : why;
                       }});
}

}  // namespace flash
