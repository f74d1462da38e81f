// The functions of the bonus in the judge: each calls the student's in the runner.
#include "bonus_backward/flash_backward_cuda.hpp"
#include "harness/cases/own_passes.hpp"
#include "harness/judge/remote.hpp"

namespace flash {
namespace {

using grading::argument;

template <class T>
void call_with_delta(grading::Function of_float, const AttentionBackward<T>& pass,
                     TensorView<const float, 3> delta) {
  grading::Call call = grading::call_of(grading::device_function<T>(of_float), pass);
  call.arguments.push_back(argument("delta", delta));
  grading::device_call(std::move(call));
}

}  // namespace

template <class T>
FlashBackwardBlocks flash_backward_blocks(Index head_dim) {
  const grading::Message done =
      grading::device_call({.function = grading::device_function<T>(grading::kFlashBackwardBlocks),
                            .integers = {head_dim}});
  if (done.integers[2] <= 0 || done.integers[3] <= 0)
    throw Error("flash_backward_blocks() gives blocks without rows");
  return {done.integers[2], done.integers[3]};
}

template <class T>
void flash_backward_delta_cuda(TensorView<const T, 4> out, TensorView<const T, 4> d_out,
                               TensorView<float, 3> delta, Stream stream) {
  grading::device_call(
      {.function = grading::device_function<T>(grading::kFlashDeltaCuda),
       .arguments = {argument("out", out), argument("d_out", d_out), argument("delta", delta)},
       .stream = grading::stream_of(stream)});
}

template <class T>
void flash_backward_dk_dv_cuda(const AttentionBackward<T>& pass, TensorView<const float, 3> delta) {
  call_with_delta(grading::kFlashDkDvCuda, pass, delta);
}

template <class T>
void flash_backward_dq_cuda(const AttentionBackward<T>& pass, TensorView<const float, 3> delta) {
  call_with_delta(grading::kFlashDqCuda, pass, delta);
}

template <class T>
void flash_attention_backward_cuda(const AttentionBackward<T>& pass) {
  grading::device_call(
      grading::call_of(grading::device_function<T>(grading::kFlashBackwardCuda), pass));
}

void harness::own_forward(const AttentionForward<float>& pass) {
  grading::Call call = grading::call_of(grading::kFlashForwardCuda, pass, {});
  call.library = 1;
  grading::device_call(std::move(call));
}

#define FLASH_INSTANTIATE(T)                                                                     \
  template FlashBackwardBlocks flash_backward_blocks<T>(Index);                                  \
  template void flash_backward_delta_cuda(TensorView<const T, 4>, TensorView<const T, 4>,        \
                                          TensorView<float, 3>, Stream);                         \
  template void flash_backward_dk_dv_cuda(const AttentionBackward<T>&,                           \
                                          TensorView<const float, 3>);                           \
  template void flash_backward_dq_cuda(const AttentionBackward<T>&, TensorView<const float, 3>); \
  template void flash_attention_backward_cuda(const AttentionBackward<T>&)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash
