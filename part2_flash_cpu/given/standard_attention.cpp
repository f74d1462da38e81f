// Standard attention, forward and backward: each formula over a whole head before the next one
// begins, and all of P in memory.
#include <algorithm>
#include <cmath>
#include <limits>

#include "part2_flash_cpu/flash_attention.hpp"

namespace flash {
namespace {

// One head as a row-major matrix of the numbers that compute, whatever the strides.
template <class T>
Tensor<LseType<T>, 2> head_of(TensorView<const T, 4> x, Index b, Index h) {
  Tensor<LseType<T>, 2> head({x.extent(2), x.extent(3)});
  for (Index i = 0; i < head.extent(0); ++i)
    for (Index c = 0; c < head.extent(1); ++c) head(i, c) = x(b, h, i, c);
  return head;
}

template <class T>
Tensor<T, 2> transposed(const Tensor<T, 2>& a) {
  Tensor<T, 2> t({a.extent(1), a.extent(0)});
  for (Index i = 0; i < a.extent(0); ++i)
    for (Index j = 0; j < a.extent(1); ++j) t(j, i) = a(i, j);
  return t;
}

template <class T, class Element>
void store(const Tensor<T, 2>& head, T factor, TensorView<Element, 4> x, Index b, Index h) {
  for (Index i = 0; i < head.extent(0); ++i)
    for (Index c = 0; c < head.extent(1); ++c)
      x(b, h, i, c) = static_cast<Element>(factor * head(i, c));
}

// Row i of the product A B uses the first count(i) elements of row i of A.
template <class T, class Count>
Tensor<T, 2> product(const Tensor<T, 2>& A, const Tensor<T, 2>& B, Count count) {
  Tensor<T, 2> C({A.extent(0), B.extent(1)});
  for (Index i = 0; i < A.extent(0); ++i)
    for (Index j = 0; j < count(i); ++j) {
      const T weight = A(i, j);
      const T* const B_row = B.data() + j * B.extent(1);
      T* const C_row = C.data() + i * C.extent(1);
      for (Index c = 0; c < B.extent(1); ++c) C_row[c] += weight * B_row[c];
    }
  return C;
}

// A^T B, with the same part of A.
template <class T, class Count>
Tensor<T, 2> transposed_product(const Tensor<T, 2>& A, const Tensor<T, 2>& B, Count count) {
  Tensor<T, 2> C({A.extent(1), B.extent(1)});
  for (Index i = 0; i < A.extent(0); ++i)
    for (Index j = 0; j < count(i); ++j) {
      const T weight = A(i, j);
      const T* const B_row = B.data() + i * B.extent(1);
      T* const C_row = C.data() + j * C.extent(1);
      for (Index c = 0; c < B.extent(1); ++c) C_row[c] += weight * B_row[c];
    }
  return C;
}

}  // namespace

template <class Element>
void standard_attention_forward(const AttentionForward<Element>& pass,
                                TensorView<LseType<Element>, 4> p) {
  using T = LseType<Element>;
  const AttentionShape shape = check_attention(pass);
  check_view("p", p, {shape.batch, shape.heads, shape.queries, shape.keys});
  const auto& [q, k, v, out, lse, options, stream] = pass;
  const T scale = static_cast<T>(attention_scale(options, shape.head_dim));
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const bool causal = options.causal;
  const auto all = [&](Index) { return shape.head_dim; };
  const auto visible = [&](Index i) { return shape.visible_keys(i, causal); };

  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h) {
      Tensor<T, 2> P =
          product(head_of(q, b, h), transposed(head_of(k, b, h)), all);  // S, without the scale
      for (Index i = 0; i < shape.queries; ++i) {
        T* const row = P.data() + i * shape.keys;
        T m = -kInfinity, l = 0;
        for (Index j = 0; j < visible(i); ++j) m = std::fmax(m, row[j] *= scale);
        const T reference = m == -kInfinity ? T{0} : m;  // exp(-inf - -inf) is NaN
        for (Index j = 0; j < visible(i); ++j) l += row[j] = std::exp(row[j] - reference);
        for (Index j = 0; j < visible(i); ++j) row[j] = l == 0 ? T{0} : row[j] / l;
        std::fill(row + visible(i), row + shape.keys, T{0});
        lse(b, h, i) = m + std::log(l);
      }
      store(product(P, head_of(v, b, h), visible), T{1}, out, b, h);
      store(P, T{1}, p, b, h);
    }
}

template <class Element>
void standard_attention_backward(const AttentionBackward<Element>& pass,
                                 TensorView<const LseType<Element>, 4> p) {
  using T = LseType<Element>;
  const AttentionShape shape = check_attention(pass);
  check_view("p", p, {shape.batch, shape.heads, shape.queries, shape.keys});
  const T scale = static_cast<T>(attention_scale(pass.options, shape.head_dim));
  const auto all = [&](Index) { return shape.head_dim; };
  const auto visible = [&](Index i) { return shape.visible_keys(i, pass.options.causal); };

  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h) {
      const Tensor<T, 2> P = head_of(p, b, h), dO = head_of(pass.d_out, b, h);
      const Tensor<T, 2> dV = transposed_product(P, dO, visible);
      Tensor<T, 2> dS = product(dO, transposed(head_of(pass.v, b, h)), all);  // dP
      for (Index i = 0; i < shape.queries; ++i) {
        T* const row = dS.data() + i * shape.keys;
        const T* const weights = P.data() + i * shape.keys;
        T delta = 0;
        for (Index j = 0; j < visible(i); ++j) delta += weights[j] * row[j];
        for (Index j = 0; j < visible(i); ++j) row[j] = weights[j] * (row[j] - delta);
      }
      store(product(dS, head_of(pass.k, b, h), visible), scale, pass.d_q, b, h);
      store(transposed_product(dS, head_of(pass.q, b, h), visible), scale, pass.d_k, b, h);
      store(dV, T{1}, pass.d_v, b, h);
    }
}

#define FLASH_INSTANTIATE(T)                                                                       \
  template void standard_attention_forward(const AttentionForward<T>&, TensorView<LseType<T>, 4>); \
  template void standard_attention_backward(const AttentionBackward<T>&,                           \
                                            TensorView<const LseType<T>, 4>)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(double);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash
