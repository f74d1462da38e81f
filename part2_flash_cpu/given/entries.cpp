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
                        .run = {standard_forward<float>, standard_forward<double>,
                                standard_forward<Half>, standard_forward<BFloat16>}});
  registry.backward.add({.name = "standard",
                         .run = {standard_backward<float>, standard_backward<double>,
                                 standard_backward<Half>, standard_backward<BFloat16>},
                         .only_as_pair = true});
  const auto forward = [task = registry.tasks.library<FlashForwardTask>()]<class T>(
                           const AttentionForward<T>& pass) {
    task->of<T>().flash_attention_forward(pass, {});
  };
  const auto backward = [task = registry.tasks.library<FlashBackwardTask>()]<class T>(
                            const AttentionBackward<T>& pass) {
    task->of<T>().flash_attention_backward(pass, 16);
  };
  registry.forward.add({.name = "flash", .run = {forward, forward, forward, forward}});
  registry.backward.add({.name = "flash", .run = {backward, backward, backward, backward}});
}

}  // namespace flash
