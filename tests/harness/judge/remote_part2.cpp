// The functions of part 2 in the judge: each calls the student's in the runner.
#include "common/registry.hpp"
#include "harness/cases/own_passes.hpp"
#include "harness/judge/remote.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash {
namespace {

using grading::argument;

template <class T>
grading::Function of_type(grading::Function of_float) {
  return static_cast<grading::Function>(of_float + static_cast<unsigned>(dtype_of<T>()));
}

}  // namespace

template <class T>
void flash_attention_forward(const AttentionForward<T>& pass, const AttentionBlocks& blocks) {
  (void)grading::remote_call(grading::call_of(of_type<T>(grading::kAttentionForward), pass,
                                              {blocks.queries, blocks.keys}));
}

template <class T>
void attention_delta(TensorView<const T, 4> out, TensorView<const T, 4> d_out,
                     TensorView<LseType<T>, 3> delta) {
  (void)grading::remote_call(
      {.function = of_type<T>(grading::kAttentionDelta),
       .arguments = {argument("out", out), argument("d_out", d_out), argument("delta", delta)}});
}

template <class T>
void flash_attention_backward(const AttentionBackward<T>& pass, Index block_keys) {
  (void)grading::remote_call(
      grading::call_of(of_type<T>(grading::kAttentionBackward), pass, {block_keys}));
}

void harness::own_forward(const AttentionForward<float>& pass) {
  const AttentionBlocks blocks;
  grading::Call call =
      grading::call_of(grading::kAttentionForward, pass, {blocks.queries, blocks.keys});
  call.library = 1;
  (void)grading::remote_call(call);
}

#define FLASH_INSTANTIATE(T)                                                                 \
  template void flash_attention_forward(const AttentionForward<T>&, const AttentionBlocks&); \
  template void attention_delta(TensorView<const T, 4>, TensorView<const T, 4>,              \
                                TensorView<LseType<T>, 3>);                                  \
  template void flash_attention_backward(const AttentionBackward<T>&, Index)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(double);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash
