// Implements oracle.hpp: one loop per sum, nothing clever.
#include "common/oracle.hpp"

#include <cmath>
#include <limits>

#include "common/checks.hpp"
#include "common/half.hpp"
#include "common/softmax_matmul.hpp"
#include "common/steps.hpp"

namespace flash {
namespace {

// The n numbers that lie `step` apart become their softmax: 0 where all are -inf, NaN where one is.
// Returns the log of the sum of their exponentials.
double softmax(double* x, Index n, Index step = 1) {
  double m = -std::numeric_limits<double>::infinity(), l = 0;
  bool has_nan = false;
  for (Index j = 0; j < n; ++j) {
    has_nan |= std::isnan(x[j * step]);
    m = std::fmax(m, x[j * step]);
  }
  const bool is_empty = std::isinf(m) && m < 0 && !has_nan;
  for (Index j = 0; j < n; ++j) l += x[j * step] = is_empty ? 0 : std::exp(x[j * step] - m);
  for (Index j = 0; j < n && !is_empty; ++j) x[j * step] /= l;
  return m + std::log(l);
}

// softmax(x, axis) v, each term passed through `term` first.
template <class T, class Term>
Tensor<double, 3> softmax_times(TensorView<const T, 3> x, TensorView<const T, 3> v, int axis,
                                Term term) {
  const Index batch = x.extent(0), d1 = x.extent(1), d2 = x.extent(2), d3 = v.extent(2);
  check_softmax_matmul_shapes(x.shape(), v.shape(), {batch, d1, d3});
  const Tensor<double, 3> p = softmax_oracle(x, axis);
  Tensor<double, 3> out({batch, d1, d3});
  for (Index b = 0; b < batch; ++b)
    for (Index i = 0; i < d1; ++i)
      for (Index j = 0; j < d2; ++j)
        for (Index c = 0; c < d3; ++c)
          out(b, i, c) += p(b, i, j) * term(static_cast<double>(v(b, j, c)));
  return out;
}

}  // namespace

template <class T>
Tensor<double, 3> softmax_oracle(TensorView<const T, 3> x, int axis) {
  axis = checked_axis(axis, 3);
  Tensor<double, 3> p(x.shape());
  for (Index b = 0; b < x.extent(0); ++b)
    for (Index i = 0; i < x.extent(1); ++i)
      for (Index j = 0; j < x.extent(2); ++j) p(b, i, j) = static_cast<double>(x(b, i, j));
  const Index n = p.extent(axis), step = axis == 0   ? p.extent(1) * p.extent(2)
                                         : axis == 1 ? p.extent(2)
                                                     : 1;
  for (Index slice = 0; n > 0 && slice < p.size() / n; ++slice)
    softmax(p.data() + slice / step * step * n + slice % step, n, step);
  return p;
}

template <class T>
Tensor<double, 3> softmax_matmul_oracle(TensorView<const T, 3> x, TensorView<const T, 3> v,
                                        int axis) {
  return softmax_times(x, v, axis, [](double value) { return value; });
}

template <class T>
Tensor<double, 3> softmax_matmul_magnitude(TensorView<const T, 3> x, TensorView<const T, 3> v,
                                           int axis) {
  return softmax_times(x, v, axis, [](double value) { return std::fabs(value); });
}

double softmax_matmul_bound(Index d2, double largest_score) {
  constexpr double kUnitRoundoff = 0x1p-24;
  return kUnitRoundoff * (8 + 2 * largest_score + 4 * std::sqrt(static_cast<double>(d2)));
}

// ---- attention ----------------------------------------------------------------------------------

namespace {

using Matrix = Tensor<double, 2>;

// One head of a tensor, in float64.
template <class T>
Matrix head_of(TensorView<const T, 4> x, Index b, Index h) {
  Matrix head({x.extent(2), x.extent(3)});
  for (Index i = 0; i < head.extent(0); ++i)
    for (Index c = 0; c < head.extent(1); ++c) head(i, c) = static_cast<double>(x(b, h, i, c));
  return head;
}

// P of one head, and lse and the largest score's terms with it (nullptr: not wanted). Keys that a
// query does not see keep P = 0.
Matrix probabilities(const Matrix& Q, const Matrix& K, const AttentionShape& shape, double scale,
                     bool causal, Index first_query, double* lse, double* largest_score) {
  Matrix P({shape.queries, shape.keys});
  for (Index i = 0; i < shape.queries; ++i) {
    const Index visible = shape.visible_keys(first_query + i, causal);
    for (Index j = 0; j < visible; ++j) {
      P(i, j) = scale * dot(&Q(i, 0), &K(j, 0), shape.head_dim);
      if (largest_score == nullptr) continue;
      const double size = std::fabs(scale) * dot_of_sizes(&Q(i, 0), &K(j, 0), shape.head_dim);
      if (std::isfinite(size)) *largest_score = std::fmax(*largest_score, size);
    }
    lse[i] = softmax(&P(i, 0), visible);
  }
  return P;
}

// Where a tensor of (batch, heads, rows, columns) has its head.
double* head_in(Tensor<double, 4>& tensor, Index b, Index h) {
  return tensor.data() + (b * tensor.extent(1) + h) * tensor.extent(2) * tensor.extent(3);
}

WithMagnitude zeros(const Shape<4>& shape) {
  return {Tensor<double, 4>(shape), Tensor<double, 4>(shape)};
}

}  // namespace

template <class T>
AttentionOracle attention_oracle(TensorView<const T, 4> q, TensorView<const T, 4> k,
                                 TensorView<const T, 4> v, const AttentionOptions& options,
                                 Magnitudes magnitudes, Index first_query) {
  const AttentionShape shape = attention_shape(q.shape(), k.shape());
  check_view("v", v, shape.of_keys());
  const double scale = attention_scale(options, shape.head_dim);
  const Index d = shape.head_dim;
  const bool wanted = magnitudes == Magnitudes::kWanted;
  AttentionOracle oracle{zeros(shape.of_queries()), Tensor<double, 3>(shape.of_rows())};
  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h) {
      const Matrix Q = head_of(q, b, h), K = head_of(k, b, h), V = head_of(v, b, h);
      const Matrix P =
          probabilities(Q, K, shape, scale, options.causal, first_query, &oracle.lse(b, h, 0),
                        wanted ? &oracle.largest_score : nullptr);
      double* const O = head_in(oracle.out.value, b, h);
      double* const O_magnitude = head_in(oracle.out.magnitude, b, h);
      for (Index i = 0; i < shape.queries; ++i)
        for (Index j = 0; j < shape.visible_keys(first_query + i, options.causal); ++j) {
          add(O + i * d, P(i, j), &V(j, 0), d);
          if (wanted) add_sizes(O_magnitude + i * d, P(i, j), &V(j, 0), d);
        }
    }
  return oracle;
}

template <class T>
AttentionOracle decode_oracle(const Decode<T>& pass) {
  const DecodeShape shape = pass.shape();
  AttentionOracle oracle{zeros(shape.of_queries()), Tensor<double, 3>(shape.of_rows())};
  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h) {
      const Index keys = pass.lengths(b);
      Tensor<T, 4> k({1, 1, keys, shape.head_dim}), v = k;
      for (Index j = 0; j < keys; ++j) {
        const Index page = pass.block_table(b, j / shape.page_size), row = j % shape.page_size;
        for (Index c = 0; c < shape.head_dim; ++c) {
          k(0, 0, j, c) = pass.k(page, row, h / shape.group(), c);
          v(0, 0, j, c) = pass.v(page, row, h / shape.group(), c);
        }
      }
      const TensorView<const T, 4> q(&pass.q(b, h, 0, 0), {1, 1, shape.queries, shape.head_dim},
                                     pass.q.strides());
      const AttentionOracle head =
          attention_oracle<T>(q, k.view(), v.view(), {.causal = true, .scale = pass.scale},
                              Magnitudes::kWanted, keys - shape.queries);
      oracle.largest_score = std::fmax(oracle.largest_score, head.largest_score);
      std::copy_n(head.lse.data(), head.lse.size(), &oracle.lse(b, h, 0));
      std::copy_n(head.out.value.data(), head.out.value.size(), head_in(oracle.out.value, b, h));
      std::copy_n(head.out.magnitude.data(), head.out.magnitude.size(),
                  head_in(oracle.out.magnitude, b, h));
    }
  return oracle;
}
template AttentionOracle decode_oracle(const Decode<float>&);
template AttentionOracle decode_oracle(const Decode<Half>&);
template AttentionOracle decode_oracle(const Decode<BFloat16>&);

template <class T>
AttentionOracleGradients attention_backward_oracle(
    TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
    TensorView<const T, 4> d_out, const AttentionOptions& options, Index first_query) {
  const AttentionShape shape = attention_shape(q.shape(), k.shape());
  check_view("v", v, shape.of_keys());
  check_view("d_out", d_out, shape.of_queries());
  const double scale = attention_scale(options, shape.head_dim);
  const Index d = shape.head_dim;
  AttentionOracleGradients gradients{zeros(shape.of_queries()), zeros(shape.of_keys()),
                                     zeros(shape.of_keys())};
  Tensor<double, 1> lse({shape.queries}), dP({shape.keys}), dP_magnitude({shape.keys}), O({d});
  double largest_score = 0;
  for (Index b = 0; b < shape.batch; ++b)
    for (Index h = 0; h < shape.heads; ++h) {
      const Matrix Q = head_of(q, b, h), K = head_of(k, b, h), V = head_of(v, b, h),
                   dO = head_of(d_out, b, h);
      const Matrix P = probabilities(Q, K, shape, scale, options.causal, first_query, lse.data(),
                                     &largest_score);
      const auto head = [&](WithMagnitude& gradient, Index row) {
        return head_in(gradient.value, b, h) + row * d;
      };
      const auto head_magnitude = [&](WithMagnitude& gradient, Index row) {
        return head_in(gradient.magnitude, b, h) + row * d;
      };
      for (Index i = 0; i < shape.queries; ++i) {
        const Index visible = shape.visible_keys(first_query + i, options.causal);
        double delta = 0, delta_magnitude = 0;
        for (Index c = 0; c < d; ++c) O(c) = 0;
        for (Index j = 0; j < visible; ++j) {
          dP(j) = dot(&dO(i, 0), &V(j, 0), d);
          dP_magnitude(j) = dot_of_sizes(&dO(i, 0), &V(j, 0), d);
          delta += P(i, j) * dP(j);
          add(O.data(), P(i, j), &V(j, 0), d);
        }
        delta_magnitude = dot_of_sizes(&dO(i, 0), O.data(), d);
        for (Index j = 0; j < visible; ++j) {
          const double dS = P(i, j) * (dP(j) - delta),
                       dS_magnitude = P(i, j) * (dP_magnitude(j) + delta_magnitude);
          add(head(gradients.d_v, j), P(i, j), &dO(i, 0), d);
          add_sizes(head_magnitude(gradients.d_v, j), P(i, j), &dO(i, 0), d);
          add(head(gradients.d_q, i), scale * dS, &K(j, 0), d);
          add_sizes(head_magnitude(gradients.d_q, i), scale * dS_magnitude, &K(j, 0), d);
          add(head(gradients.d_k, j), scale * dS, &Q(i, 0), d);
          add_sizes(head_magnitude(gradients.d_k, j), scale * dS_magnitude, &Q(i, 0), d);
        }
      }
    }
  return gradients;
}

double attention_bound(const AttentionShape& shape, double largest_score, double unit_roundoff) {
  const double head_dim = static_cast<double>(shape.head_dim),
               keys = static_cast<double>(shape.keys);
  return unit_roundoff * (8 + (4 + std::sqrt(head_dim)) * largest_score + 4 * std::sqrt(keys));
}

double attention_backward_bound(const AttentionShape& shape, double largest_score,
                                double unit_roundoff) {
  const double others = static_cast<double>(shape.queries + shape.head_dim);
  return 2 * attention_bound(shape, largest_score, unit_roundoff) +
         4 * unit_roundoff * std::sqrt(others);
}

#define FLASH_INSTANTIATE_ATTENTION(T)                                                       \
  template AttentionOracle attention_oracle(TensorView<const T, 4>, TensorView<const T, 4>,  \
                                            TensorView<const T, 4>, const AttentionOptions&, \
                                            Magnitudes, Index);                              \
  template AttentionOracleGradients attention_backward_oracle(                               \
      TensorView<const T, 4>, TensorView<const T, 4>, TensorView<const T, 4>,                \
      TensorView<const T, 4>, const AttentionOptions&, Index)
#define FLASH_INSTANTIATE(T)                                                                       \
  template Tensor<double, 3> softmax_oracle(TensorView<const T, 3>, int);                          \
  template Tensor<double, 3> softmax_matmul_oracle(TensorView<const T, 3>, TensorView<const T, 3>, \
                                                   int);                                           \
  template Tensor<double, 3> softmax_matmul_magnitude(TensorView<const T, 3>,                      \
                                                      TensorView<const T, 3>, int);                \
  FLASH_INSTANTIATE_ATTENTION(T)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(double);
FLASH_INSTANTIATE_ATTENTION(Half);
FLASH_INSTANTIATE_ATTENTION(BFloat16);

}  // namespace flash
