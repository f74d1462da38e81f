// The attention problem: its shapes, mask and scale, on which all implementations agree.
//
//   S = scale * Q K^T, masked      P = softmax(S), row by row
//   O = P V                        lse = log(sum over j of exp(S(i, j)))
//
//   q, out, d_out, d_q         (batch, heads, queries, head_dim)
//   k, v, d_k, d_v             (batch, heads, keys, head_dim)
//   lse, delta                 (batch, heads, queries)
//
// Strides are at least 0, of inputs also 0. A query sees every key, or if `causal` keys j <= i,
// both counted from 0. keys = 0 is legal; every other extent is at least 1. A row that sees no key,
// or only scores of -inf, has O = 0 and lse = -inf. A row that sees a NaN becomes NaN; others may,
// too, in a pass with `finite_inputs`. Scores and sums on the way may be as large as the largest
// number of lse's type over log2(e), 2.3e38 in float32, with either sign; a row beyond that may be
// NaN. A backward pass takes exp(S - lse), with lse's error: |S| 2^-24 has to be small in float32.
#pragma once

#include <algorithm>
#include <optional>
#include <type_traits>

#include "common/stream.hpp"
#include "common/tensor.hpp"

namespace flash {

struct AttentionProblem;  // common/registry.hpp: a pass without its data

struct AttentionOptions {
  bool causal = false;
  std::optional<double> scale = std::nullopt;  // of the scores; default 1 / sqrt(head_dim)
};

struct AttentionShape {
  Index batch = 1, heads = 1, queries = 1, keys = 1, head_dim = 1;

  Shape<4> of_queries() const { return {batch, heads, queries, head_dim}; }  // q, out, d_out, d_q
  Shape<4> of_keys() const { return {batch, heads, keys, head_dim}; }        // k, v, d_k, d_v
  Shape<3> of_rows() const { return {batch, heads, queries}; }               // lse, delta

  // Query i sees the keys from 0 to visible_keys(i, causal) - 1.
  FLASH_HOST_DEVICE Index visible_keys(Index i, bool causal) const {
    return causal && i + 1 < keys ? i + 1 : keys;
  }
};

// Pairs of a query and a key that it sees, in one head.
FLASH_EXPORT double visible_pairs(const AttentionShape& shape, bool causal);

// lse is float32 or wider.
template <class T>
using LseType = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The argument of a forward pass. The function that takes it says whether the views point to host
// memory or to device memory; on a GPU the work goes to `stream`. Trivially copyable: a kernel can
// take it, but not read options.scale, which the launcher resolves by attention_scale().
template <class T>
struct AttentionForward {
  using Element = T;
  using Problem = AttentionProblem;

  TensorView<const T, 4> q, k, v;
  TensorView<T, 4> out;
  TensorView<LseType<T>, 3> lse;
  AttentionOptions options = {};
  Stream stream = {};

  FLASH_HOST_DEVICE AttentionShape shape() const {
    return {q.extent(0), q.extent(1), q.extent(2), k.extent(2), q.extent(3)};
  }
};

// The argument of a backward pass: d_q, d_k and d_v become the gradients of sum(out * d_out). `out`
// and `lse` are the results of a forward pass for the same q, k, v and options.
template <class T>
struct AttentionBackward {
  using Element = T;
  using Problem = AttentionProblem;

  TensorView<const T, 4> q, k, v, out;
  TensorView<const LseType<T>, 3> lse;
  TensorView<const T, 4> d_out;
  TensorView<T, 4> d_q, d_k, d_v;
  AttentionOptions options = {};
  Stream stream = {};

  FLASH_HOST_DEVICE AttentionShape shape() const {
    return {q.extent(0), q.extent(1), q.extent(2), k.extent(2), q.extent(3)};
  }
};

// options.scale or its default; 0 for one below 1.2e-38. ArgumentError: NaN, or more than 1e38.
FLASH_EXPORT double attention_scale(const AttentionOptions& options, Index head_dim);

// Throws ShapeError unless each extent of `argument`, which has the shape of q, is at least 1.
FLASH_EXPORT void check_not_empty(const std::string& argument, const Shape<4>& of_queries);

// The shape of the problem with this q and k. Throws ShapeError when they do not fit each other, or
// when an extent other than keys is 0.
FLASH_EXPORT AttentionShape attention_shape(const Shape<4>& q, const Shape<4>& k);

namespace any_rank {
FLASH_EXPORT void check_view(const char* argument, bool is_null, const Index* shape,
                             const Index* want, int rank);
}

// Throws ShapeError unless `view` has the shape `want`, and ArgumentError when a view with elements
// is a null pointer.
template <class T, int Rank>
void check_view(const char* argument, const TensorView<T, Rank>& view,
                const std::type_identity_t<Shape<Rank>>& want) {
  any_rank::check_view(argument, view.data() == nullptr, view.shape().data(), want.data(), Rank);
}

// Checks all tensors of a pass, and returns the shape of the problem. Throws as check_view() and
// attention_shape() do.
template <class Pass>
AttentionShape check_attention(const Pass& pass) {
  const AttentionShape shape = attention_shape(pass.q.shape(), pass.k.shape());
  check_view("q", pass.q, shape.of_queries());
  check_view("k", pass.k, shape.of_keys());
  check_view("v", pass.v, shape.of_keys());
  check_view("out", pass.out, shape.of_queries());
  check_view("lse", pass.lse, shape.of_rows());
  if constexpr (requires { pass.d_out; }) {
    check_view("d_out", pass.d_out, shape.of_queries());
    check_view("d_q", pass.d_q, shape.of_queries());
    check_view("d_k", pass.d_k, shape.of_keys());
    check_view("d_v", pass.d_v, shape.of_keys());
  }
  return shape;
}

}  // namespace flash
