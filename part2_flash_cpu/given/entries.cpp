// The passes that part 2 enters in the registry: "standard", which is given, and "flash", the tasks
// from the libraries that the registry names.
#include "common/registry.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash {
namespace {

template <class T>
void standard_forward(const AttentionForward<T>& pass, PassMemory& memory) {
  const AttentionShape shape = check_attention(pass);
  const auto p = std::make_shared<Tensor<LseType<T>, 4>>(
      Shape<4>{shape.batch, shape.heads, shape.queries, shape.keys});
  memory.kept = p;
  memory.kept_bytes = static_cast<std::size_t>(p->size()) * sizeof(LseType<T>);
  standard_attention_forward(pass, p->view());
}

template <class T>
void standard_backward(const AttentionBackward<T>& pass, PassMemory& memory) {
  const auto& p = *static_cast<const Tensor<LseType<T>, 4>*>(memory.kept.get());
  standard_attention_backward(pass, p.view());
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.forward.add({.name = "standard",
                        .run = {.float32 = standard_forward<float>,
                                .float64 = standard_forward<double>,
                                .float16 = standard_forward<Half>,
                                .bfloat16 = standard_forward<BFloat16>}});
  registry.backward.add({.name = "standard",
                         .run = {.float32 = standard_backward<float>,
                                 .float64 = standard_backward<double>,
                                 .float16 = standard_backward<Half>,
                                 .bfloat16 = standard_backward<BFloat16>},
                         .only_as_pair = true});
  const auto forward = [task = registry.tasks.library<FlashForwardTask>()]<class T>(
                           const AttentionForward<T>& pass) {
    task->of<T>().flash_attention_forward(pass, {});
  };
  const auto backward = [task = registry.tasks.library<FlashBackwardTask>()]<class T>(
                            const AttentionBackward<T>& pass) {
    task->of<T>().flash_attention_backward(pass, 16);
  };
  registry.forward.add(
      {.name = "flash",
       .run = {.float32 = forward, .float64 = forward, .float16 = forward, .bfloat16 = forward}});
  registry.backward.add(
      {.name = "flash",
       .run = {
           .float32 = backward, .float64 = backward, .float16 = backward, .bfloat16 = backward}});
}

}  // namespace flash
