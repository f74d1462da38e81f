// Implements gradient_verdicts.hpp.
#include "harness/gradient_verdicts.hpp"

#include <cmath>

#include "common/compare.hpp"
#include "common/half.hpp"

namespace flash::harness {

namespace {

// Whether a wrong P or dS would show in each gradient.
bool tell_apart(const AttentionOracleGradients& want) {
  for (const WithMagnitude* gradient : {&want.d_q, &want.d_k, &want.d_v}) {
    bool is_zero = true;  // but for what rounding leaves of the oracle's own terms
    for (Index i = 0; i < gradient->value.size(); ++i) {
      const double value = gradient->value.data()[i];
      if (!std::isfinite(value)) return false;
      is_zero &= std::fabs(value) <= 1e-12 * gradient->magnitude.data()[i];
    }
    if (is_zero) return false;
  }
  return true;
}

}  // namespace

std::string pointed_to(const AttentionOracleGradients& want, bool d_q_wrong, bool d_k_wrong, bool d_v_wrong, Passes passes) {
  if (!tell_apart(want)) return "";
  if (d_v_wrong && (d_q_wrong || d_k_wrong))
    return "dV is wrong, which needs nothing but P and d_out: look at P = exp(S - lse) first, at its scale and its mask.";
  if (d_v_wrong) return "Only dV is wrong, so P is right: look at how dV = P^T dO is summed up over the queries.";
  if (d_q_wrong && d_k_wrong && passes == Passes::kTwo)
    return "dV is right, so P is in its pass, and dK is wrong: look at dP = dO V^T, at delta, and at dS = P * (dP - delta) "
           "there. dQ's pass computes its own P: look at all of it.";
  if (d_q_wrong && d_k_wrong)
    return "dV is right, so P is; dQ and dK are both wrong: look at dP = dO V^T, at delta, and at dS = P * (dP - delta) and "
           "its scale.";
  if (passes == Passes::kTwo)
    return d_q_wrong
               ? "Only dQ is wrong: look at its pass, at the P and dS that it computes for itself and at how dQ = scale * dS K "
                 "is summed up over the keys."
               : "Only dK is wrong, so P is right: look at dS in the pass for dK and dV, and at how dK = scale * dS^T Q is "
                 "summed up over the queries.";
  if (d_q_wrong) return "Only dQ is wrong, so dS is right: look at how dQ = scale * dS K is summed up over the keys.";
  return "Only dK is wrong, so dS is right: look at how dK = scale * dS^T Q is summed up over the queries.";
}

template <class T>
std::string wrong_delta(TensorView<const float, 3> delta, TensorView<const T, 4> out, TensorView<const T, 4> d_out) {
  Tensor<double, 3> want(delta.shape()), magnitude(delta.shape());
  for (Index b = 0; b < out.extent(0); ++b)
    for (Index h = 0; h < out.extent(1); ++h)
      for (Index i = 0; i < out.extent(2); ++i)
        for (Index c = 0; c < out.extent(3); ++c) {
          const double term = static_cast<double>(out(b, h, i, c)) * static_cast<double>(d_out(b, h, i, c));
          want(b, h, i) += term;
          magnitude(b, h, i) += std::fabs(term);
        }
  CompareOptions options;
  options.max_scaled = 0x1p-24 * (2 + 2 * std::sqrt(static_cast<double>(out.extent(3))));
  options.max_frobenius = 1e-5;
  options.axes = {"batch", "head", "query"};
  options.blocks = {0, 0, 0};
  options.magnitude = magnitude.data();
  const Comparison comparison = compare<3>(delta, want, options);
  return comparison.pass ? "" : "delta is wrong. " + comparison.text;
}

template std::string wrong_delta(TensorView<const float, 3>, TensorView<const float, 4>, TensorView<const float, 4>);
template std::string wrong_delta(TensorView<const float, 3>, TensorView<const Half, 4>, TensorView<const Half, 4>);
template std::string wrong_delta(TensorView<const float, 3>, TensorView<const BFloat16, 4>, TensorView<const BFloat16, 4>);

}  // namespace flash::harness
