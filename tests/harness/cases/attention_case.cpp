#include "harness/cases/attention_case.hpp"

#include <cmath>

#include "harness/cases/far_apart.hpp"

namespace flash::harness {
namespace {

constexpr AttentionShape kShapeFarApart{2, 1, 20, 23, 6};

// What Half loses below its least normal number, 2^-14, as a part of the magnitude that `bound` is
// of: up to 2^-25 of a result, and of each of the `terms` weights that it is the sum of, which meet
// values of about 1.
void add_underflow(WithMagnitude& tensor, double bound, Index terms) {
  for (Index i = 0; i < tensor.magnitude.size(); ++i)
    tensor.magnitude.data()[i] += 0x1p-25 * (1 + static_cast<double>(terms)) / bound;
}

// The same of out, whose weights meet v.
void add_underflow(WithMagnitude& out, TensorView<const Half, 4> v, const AttentionShape& shape,
                   bool causal, double bound) {
  const auto& [batch, heads, queries, keys, head_dim] = shape;
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index c = 0; c < head_dim; ++c) {
        double sizes = 0;
        for (Index i = 0, j = 0; i < queries; ++i) {
          for (; j < shape.visible_keys(i, causal); ++j)
            sizes += std::fabs(static_cast<double>(v(b, h, j, c)));
          out.magnitude(b, h, i, c) += 0x1p-25 * (1 + sizes) / bound;
        }
      }
}

// rowsum(out * d_out) in float64, of what the kernels get.
template <class T>
Tensor<float, 3> delta_of(const Tensor<T, 4>& out, const Tensor<T, 4>& d_out) {
  const Index columns = out.extent(3);
  Tensor<float, 3> delta({out.extent(0), out.extent(1), out.extent(2)});
  for (Index row = 0; row < delta.size(); ++row) {
    double sum = 0;
    for (Index c = row * columns; c < (row + 1) * columns; ++c)
      sum += static_cast<double>(out.data()[c]) * static_cast<double>(d_out.data()[c]);
    delta.data()[row] = static_cast<float>(sum);
  }
  return delta;
}

}  // namespace

// ---- Cases --------------------------------------------------------------------------------------

using enum Data;
using enum Layout;
using enum DType;

std::string AttentionCase::requirement() const {
  const bool ordinary = data == kNormal || data == kHalfNormal;
  if (!ordinary || nan_in != nullptr || without_weights || shape.keys == 0) return "special values";
  if (layout != kRowMajor || shift != 0) return "strides";
  if (type != kFloat32 || scale) return "scale and types";
  if (causal) return "mask";
  const Blocks whole = blocks.keys > 0 ? blocks : Blocks{64, 64};
  return shape.queries % whole.queries != 0 || shape.keys % whole.keys != 0 ? "ragged ends"
                                                                            : "whole blocks";
}

AttentionCase AttentionCase::of_type(DType other) const {
  AttentionCase copy = *this;
  copy.name = (other == kFloat16 ? "half: " : "bfloat16: ") + name;
  copy.type = other;
  return copy;
}

AttentionCase AttentionCase::of_probe(const Probe& probe) const {
  AttentionCase copy = *this;
  copy.shape = probe.shape;
  copy.data = probe.data;
  // With a negative one they would be large, which says nothing of where a maximum starts.
  if (probe.data == kVeryNegative && scale) copy.scale = std::fabs(*scale);
  if (probe.block > 0 && blocks.keys > 0) copy.blocks = {probe.block, probe.block};
  if (probe.shares_none && layout == kBroadcast) copy.layout = kRowMajor;
  copy.nan_in = nullptr;
  copy.without_weights = false;
  return copy;
}

// ---- Verdicts -----------------------------------------------------------------------------------

template <class T>
std::string wrong_outputs(const AttentionCase& problem, TensorView<const T, 4> q,
                          TensorView<const T, 4> k, TensorView<const T, 4> v,
                          TensorView<const T, 4> out, TensorView<const LseType<T>, 3> lse) {
  AttentionOracle oracle = attention_oracle(q, k, v, problem.options());
  const AttentionShape shape = attention_shape(q.shape(), k.shape());
  const double bound = output_bound<T>(problem, shape, oracle.largest_score);
  if constexpr (std::is_same_v<T, Half>) add_underflow(oracle.out, v, shape, problem.causal, bound);
  const Index block = problem.blocks.queries;
  // lse is a sum of weights that were not rounded, in float32 where T has 16 bits.
  using Lse = LseType<T>;
  const double lse_bound =
      attention_bound(shape, problem.inexact(oracle.largest_score), unit_roundoff<Lse>());
  if (!problem.lse_only)
    return wrong_forward(out, lse, oracle, bound, lse_bound, "query", block, problem.tolerance);
  const std::string wrong = wrong_lse<Lse>(lse, oracle.lse, lse_bound, block);
  return wrong.empty() ? "" : "lse is wrong. " + wrong;
}

template <class T>
std::string wrong_gradients(const AttentionCase& problem, const AttentionBackward<T>& pass,
                            TensorView<const T, 4> d_q, TensorView<const T, 4> d_k,
                            TensorView<const T, 4> d_v, Wanted wanted) {
  const AttentionOracle forward = attention_oracle(pass.q, pass.k, pass.v, problem.options());
  auto want = attention_backward_oracle(pass.q, pass.k, pass.v, pass.d_out, problem.options());
  const AttentionShape shape = pass.shape();
  const double bound = attention_gradient_bound<T>(shape, problem.inexact(forward.largest_score));
  if constexpr (std::is_same_v<T, Half>)
    for (WithMagnitude* gradient : {&want.d_q, &want.d_k, &want.d_v})
      add_underflow(*gradient, bound, std::max(shape.queries, shape.keys));
  const auto wrong = [&](Wanted which, TensorView<const T, 4> got, const WithMagnitude& expected,
                         const char* rows, Index block) {
    return wanted == which || wanted == Wanted::kAll
               ? wrong_in<T>(got, expected, bound, rows, block, problem.tolerance)
               : "";
  };
  return gradients_text(wrong(Wanted::kDQ, d_q, want.d_q, "query", problem.blocks.queries),
                        wrong(Wanted::kDK, d_k, want.d_k, "key", problem.block_of_keys()),
                        wrong(Wanted::kDV, d_v, want.d_v, "key", problem.block_of_keys()));
}

template <class T>
BackwardInputs<T>::BackwardInputs(const AttentionCase& problem, std::uint64_t seed)
    : qkv(inputs_of<T>(problem, seed)),
      d_out(shared_in(problem.layout, 4, make_d_out<T>(problem.shape, problem.data, seed))) {
  const AttentionShape& shape = problem.shape;
  if (problem.nan_in != nullptr) {
    const std::string where = problem.nan_in;
    (where == "q"   ? qkv.q
     : where == "k" ? qkv.k
                    : d_out)(0, 0, problem.nan_row, 0) = static_cast<T>(NAN);
  }
  const auto forward_of = [&](auto of) {
    return attention_oracle<T>(of(std::as_const(qkv.q).view()), of(std::as_const(qkv.k).view()),
                               of(std::as_const(qkv.v).view()), problem.options(),
                               Magnitudes::kLeftOut);
  };
  if (!problem.sampled) {
    const AttentionOracle forward = forward_of([](auto x) { return x; });
    out = converted<T>(forward.out.value);
    lse = converted<LseType<T>>(forward.lse);
    for (Index row = 0; problem.without_weights && row < lse.size(); row += 3)
      lse.data()[row] = -INFINITY;
  } else {
    // Nobody looks at the gradients of the other heads, whose out is 0 and whose weights are about
    // 1 / keys.
    out = Tensor<T, 4>(shape.of_queries());
    lse = Tensor<LseType<T>, 3>(shape.of_rows());
    std::fill_n(lse.data(), lse.size(),
                static_cast<LseType<T>>(std::log(static_cast<double>(shape.keys))));
    for (const Index head : sampled_heads(shape)) {
      const Index b = head / shape.heads, h = head % shape.heads;
      const AttentionOracle forward = forward_of([&](auto x) { return view_of_head(x, b, h); });
      for (Index i = 0; i < shape.queries; ++i) {
        lse(b, h, i) = static_cast<LseType<T>>(forward.lse(0, 0, i));
        for (Index c = 0; c < shape.head_dim; ++c)
          out(b, h, i, c) = static_cast<T>(forward.out.value(0, 0, i, c));
      }
    }
  }
  delta = delta_of(out, d_out);
}

template <class T>
Verdict forward_far_apart(
    std::uint64_t seed,
    const std::type_identity_t<std::function<void(const AttentionForward<T>&)>>& run) {
  const auto wrong_with = [=](FarApart& memory) {
    const auto inputs = make_inputs<T>(kShapeFarApart, Data::kNormal, seed);
    const auto out = memory.tensor<T, 4>(kShapeFarApart.of_queries());
    const auto lse = memory.tensor<LseType<T>, 3>(kShapeFarApart.of_rows());
    run({memory.tensor(inputs.q), memory.tensor(inputs.k), memory.tensor(inputs.v), out, lse});
    const auto& [q, k, v] = inputs;
    return wrong_outputs<T>({.shape = kShapeFarApart, .type = dtype_of<T>()}, q.view(), k.view(),
                            v.view(), out, lse);
  };
  return with_far_apart(wrong_with, sizeof(T));
}
template Verdict forward_far_apart<float>(
    std::uint64_t, const std::function<void(const AttentionForward<float>&)>&);
template Verdict forward_far_apart<Half>(std::uint64_t,
                                         const std::function<void(const AttentionForward<Half>&)>&);

Verdict backward_far_apart(std::uint64_t seed,
                           const std::function<void(const AttentionBackward<float>&)>& run) {
  return with_far_apart([=](FarApart& memory) {
    const BackwardInputs<float> inputs({.shape = kShapeFarApart}, seed);
    const auto& [q, k, v] = inputs.qkv;
    const auto d_q = memory.tensor<float, 4>(kShapeFarApart.of_queries()),
               d_k = memory.tensor<float, 4>(kShapeFarApart.of_keys()),
               d_v = memory.tensor<float, 4>(kShapeFarApart.of_keys());
    run({memory.tensor(q), memory.tensor(k), memory.tensor(v), memory.tensor(inputs.out),
         memory.tensor(inputs.lse), memory.tensor(inputs.d_out), d_q, d_k, d_v});
    return wrong_gradients<float>({.shape = kShapeFarApart},
                                  {q.view(), k.view(), v.view(), {}, {}, inputs.d_out.view()}, d_q,
                                  d_k, d_v);
  });
}

#define FLASH_INSTANTIATE(T)                                                                   \
  template std::string wrong_outputs(const AttentionCase&, TensorView<const T, 4>,             \
                                     TensorView<const T, 4>, TensorView<const T, 4>,           \
                                     TensorView<const T, 4>, TensorView<const LseType<T>, 3>); \
  template std::string wrong_gradients(const AttentionCase&, const AttentionBackward<T>&,      \
                                       TensorView<const T, 4>, TensorView<const T, 4>,         \
                                       TensorView<const T, 4>, Wanted);                        \
  template struct BackwardInputs<T>
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(double);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash::harness
