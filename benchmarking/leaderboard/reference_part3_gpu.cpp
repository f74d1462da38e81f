// What the boards of attention on a GPU compare with: the given standard attention, behind the
// contracts of the two tasks. One head at a time, so that its matrix fits a small GPU. The backward
// pass computes P again, because its contract hands it none.
#include "bonus_backward/flash_backward_cuda.hpp"
#include "common/cuda/device_tensor.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"
#include "part3_flash_cuda/standard_attention.hpp"

namespace flash {
namespace {

template <class T, int Rank>
TensorView<T, Rank> head_of(TensorView<T, Rank> x, Index b, Index h) {
  Shape<Rank> shape = x.shape();
  shape[0] = shape[1] = 1;
  return {x.data() + b * x.stride(0) + h * x.stride(1), shape, x.strides()};
}

template <class Use>
void for_each_head(const AttentionShape& shape, Use use) {
  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h) use(b, h);
}

template <class T>
DeviceTensor<T, 4> matrix_of(const AttentionShape& shape, Stream stream) {
  return DeviceTensor<T, 4>({1, 1, shape.queries, shape.keys}, stream);
}

}  // namespace

template <class T>
void flash_attention_forward_cuda(const AttentionForward<T>& pass,
                                  const std::optional<FlashForwardConfig>&) {
  const auto p = matrix_of<T>(pass.shape(), pass.stream);
  for_each_head(pass.shape(), [&](Index b, Index h) {
    standard_attention_forward_cuda<T>(
        {head_of(pass.q, b, h), head_of(pass.k, b, h), head_of(pass.v, b, h),
         head_of(pass.out, b, h), head_of(pass.lse, b, h), pass.options, pass.stream},
        p.view());
  });
}

template <class T>
void flash_attention_backward_cuda(const AttentionBackward<T>& pass) {
  const AttentionShape shape = pass.shape();
  const auto p = matrix_of<T>(shape, pass.stream);
  const DeviceTensor<T, 4> out({1, 1, shape.queries, shape.head_dim}, pass.stream);
  const DeviceTensor<float, 3> lse({1, 1, shape.queries}, pass.stream);
  for_each_head(shape, [&](Index b, Index h) {
    const auto q = head_of(pass.q, b, h), k = head_of(pass.k, b, h), v = head_of(pass.v, b, h);
    standard_attention_forward_cuda<T>({q, k, v, out.view(), lse.view(), pass.options, pass.stream},
                                       p.view());
    standard_attention_backward_cuda<T>(
        {q, k, v, head_of(pass.out, b, h), head_of(pass.lse, b, h), head_of(pass.d_out, b, h),
         head_of(pass.d_q, b, h), head_of(pass.d_k, b, h), head_of(pass.d_v, b, h), pass.options,
         pass.stream},
        TensorView<const T, 4>(p.view()));
  });
}

#define FLASH_INSTANTIATE(T)                                                            \
  template void flash_attention_forward_cuda(const AttentionForward<T>&,                \
                                             const std::optional<FlashForwardConfig>&); \
  template void flash_attention_backward_cuda(const AttentionBackward<T>&)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash
