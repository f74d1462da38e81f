// The attention problem: shapes, mask and scale, which every implementation in every part agrees on and checks.
//
//   S = scale * Q K^T, masked      P = softmax(S), row by row      O = P V      lse = log(sum over j of exp(S(i, j)))
//
//   q, out, d_out, d_q         (batch, heads, queries, head_dim)
//   k, v, d_k, d_v             (batch, heads, keys, head_dim)
//   lse, delta                 (batch, heads, queries)
//
// Any strides. A query i sees every key, or with `causal` the keys j <= i, both counted from 0 (as PyTorch's is_causal, also when
// there are more queries than keys or fewer). keys = 0 is legal; every other extent is at least 1. A row that sees no key, or only
// keys whose score is -inf, has O = 0 and lse = -inf. NaN in the data makes the rows NaN that see it.
#pragma once

#include <algorithm>
#include <optional>
#include <type_traits>

#include "common/tensor.hpp"

namespace flash {

struct AttentionOptions {
  bool causal = false;
  std::optional<double> scale = std::nullopt;  // of the scores; default 1 / sqrt(head_dim)
};

struct AttentionShape {
  Index batch = 1, heads = 1, queries = 1, keys = 1, head_dim = 1;

  Shape<4> of_queries() const { return {batch, heads, queries, head_dim}; }  // q, out, d_out, d_q
  Shape<4> of_keys() const { return {batch, heads, keys, head_dim}; }        // k, v, d_k, d_v
  Shape<3> of_rows() const { return {batch, heads, queries}; }               // lse, delta

  // How many keys, counted from the first, query i sees.
  Index visible_keys(Index i, bool causal) const { return causal ? std::min(i + 1, keys) : keys; }
};

// options.scale or its default. Throws ArgumentError when it is not a finite number.
FLASH_EXPORT double attention_scale(const AttentionOptions& options, Index head_dim);

// Throws ShapeError unless each extent of `argument`, which has the shape of q, is at least 1.
FLASH_EXPORT void check_not_empty(const std::string& argument, const Shape<4>& of_queries);

// The shape that q and k have together. Throws ShapeError when they do not fit, or an extent other than keys is 0.
FLASH_EXPORT AttentionShape attention_shape(const Shape<4>& q, const Shape<4>& k);

namespace any_rank {
FLASH_EXPORT void check_view(const char* argument, bool is_null, const Index* shape, const Index* want, int rank);
}

// Throws ShapeError unless `view` has the shape `want`, ArgumentError when it has elements and points nowhere.
template <class T, int Rank>
void check_view(const char* argument, const TensorView<T, Rank>& view, const std::type_identity_t<Shape<Rank>>& want) {
  any_rank::check_view(argument, view.data() == nullptr, view.shape().data(), want.data(), Rank);
}

// All arguments of a forward pass. Returns the shape that they have together.
template <class T, class Lse>
AttentionShape check_attention_forward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                       TensorView<T, 4> out, TensorView<Lse, 3> lse) {
  const AttentionShape shape = attention_shape(q.shape(), k.shape());
  check_view("q", q, shape.of_queries());
  check_view("k", k, shape.of_keys());
  check_view("v", v, shape.of_keys());
  check_view("out", out, shape.of_queries());
  check_view("lse", lse, shape.of_rows());
  return shape;
}

// All arguments of a backward pass.
template <class T, class Lse>
AttentionShape check_attention_backward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                        TensorView<const T, 4> out, TensorView<const Lse, 3> lse, TensorView<const T, 4> d_out,
                                        TensorView<T, 4> d_q, TensorView<T, 4> d_k, TensorView<T, 4> d_v) {
  const AttentionShape shape = attention_shape(q.shape(), k.shape());
  check_view("q", q, shape.of_queries());
  check_view("k", k, shape.of_keys());
  check_view("v", v, shape.of_keys());
  check_view("out", out, shape.of_queries());
  check_view("lse", lse, shape.of_rows());
  check_view("d_out", d_out, shape.of_queries());
  check_view("d_q", d_q, shape.of_queries());
  check_view("d_k", d_k, shape.of_keys());
  check_view("d_v", d_v, shape.of_keys());
  return shape;
}

}  // namespace flash
