// What part 2's board compares with: the given standard attention, behind the contracts of the two
// tasks. The backward pass computes P again, because its contract hands it none.
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash {

template <class T>
void flash_attention_forward(const AttentionForward<T>& pass, const AttentionBlocks&) {
  const AttentionShape shape = pass.shape();
  Tensor<T, 4> p({shape.batch, shape.heads, shape.queries, shape.keys});
  standard_attention_forward(pass, p.view());
}

template <class T>
void flash_attention_backward(const AttentionBackward<T>& pass, Index) {
  const AttentionShape shape = pass.shape();
  Tensor<T, 4> p({shape.batch, shape.heads, shape.queries, shape.keys}), out(shape.of_queries());
  Tensor<LseType<T>, 3> lse(shape.of_rows());
  standard_attention_forward(
      AttentionForward<T>{pass.q, pass.k, pass.v, out.view(), lse.view(), pass.options}, p.view());
  standard_attention_backward(pass, TensorView<const T, 4>(std::as_const(p).view()));
}

template void flash_attention_forward(const AttentionForward<float>&, const AttentionBlocks&);
template void flash_attention_backward(const AttentionBackward<float>&, Index);

}  // namespace flash
