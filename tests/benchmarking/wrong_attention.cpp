// Flash passes that go wrong, each head_dim in a way of its own, for the tests of what bench_attention makes of it.
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash {
namespace {

// What the given functions want.
template <class T>
Tensor<T, 4> p_for(const AttentionShape& shape) {
  return Tensor<T, 4>({shape.batch, shape.heads, shape.queries, shape.keys});
}

}  // namespace

template <class T>
void flash_attention_forward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
                             TensorView<T, 3> lse, const AttentionOptions& options, const AttentionBlocks&) {
  const AttentionShape shape = check_attention_forward(q, k, v, out, lse);
  if (shape.head_dim == 1) throw Unsupported("head_dim is 1; it must be larger");
  if (shape.head_dim == 2) throw Error("something\nwent wrong");
  standard_attention_forward<T>(q, k, v, out, p_for<T>(shape).view(), options);
  if (shape.head_dim == 3) out(0, shape.heads - 1, shape.queries - 1, 2) += T{0.01};
}

template <class T>
void flash_attention_backward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                              TensorView<const T, 4>, TensorView<const T, 3>, TensorView<const T, 4> d_out,
                              TensorView<T, 4> d_q, TensorView<T, 4> d_k, TensorView<T, 4> d_v, const AttentionOptions& options,
                              Index) {
  const AttentionShape shape = attention_shape(q.shape(), k.shape());
  if (shape.head_dim == 4) throw NotYetImplemented("part2.flash_backward");
  if (shape.head_dim == 5) return;  // writes nothing
  Tensor<T, 4> out(shape.of_queries()), p = p_for<T>(shape);
  standard_attention_forward<T>(q, k, v, out.view(), p.view(), options);
  standard_attention_backward<T>(q, k, v, p.view(), d_out, d_q, d_k, d_v, options);
  if (shape.head_dim == 6) d_k(0, 0, 0, 0) = 2 * d_k(0, 0, 0, 0);
}

#define FLASH_INSTANTIATE(T)                                                                                                  \
  template void flash_attention_forward(TensorView<const T, 4>, TensorView<const T, 4>, TensorView<const T, 4>,               \
                                        TensorView<T, 4>, TensorView<T, 3>, const AttentionOptions&, const AttentionBlocks&); \
  template void flash_attention_backward(TensorView<const T, 4>, TensorView<const T, 4>, TensorView<const T, 4>,              \
                                         TensorView<const T, 4>, TensorView<const T, 3>, TensorView<const T, 4>,              \
                                         TensorView<T, 4>, TensorView<T, 4>, TensorView<T, 4>, const AttentionOptions&, Index)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(double);

}  // namespace flash
