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

std::string pointed_to(const AttentionOracleGradients& want, bool d_q_wrong, bool d_k_wrong,
                       bool d_v_wrong, Passes passes) {
  if (!tell_apart(want)) return "";
  // What is right and what that needs; where the mistake is, nobody can tell from that alone.
  std::vector<std::string> wrong, right;
  for (const auto& [name, is_wrong] :
       {std::pair{"dQ", d_q_wrong}, {"dK", d_k_wrong}, {"dV", d_v_wrong}})
    (is_wrong ? wrong : right).push_back(name);
  const auto list = [](const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t n = 0; n < names.size(); ++n)
      text += (n == 0 ? "" : n + 1 == names.size() ? " and " : ", ") + names[n];
    return text + (names.size() == 1 ? " is" : " are");
  };
  std::string text = list(wrong) + " wrong";
  if (!right.empty()) text += ", and " + list(right) + " right";
  text += ".";
  if (d_v_wrong) text += " dV = P^T dO needs P, d_out and the queries that see the key, no more.";
  if (!d_v_wrong && (d_q_wrong || d_k_wrong))
    text +=
        " Beside what dV needs there are dP = dO V^T, delta, dS = P * (dP - delta) and the scale.";
  if (d_q_wrong && !d_k_wrong) text += " dQ = scale * dS K is summed up over the keys.";
  if (d_k_wrong && !d_q_wrong) text += " dK = scale * dS^T Q is summed up over the queries.";
  if (passes == Passes::kTwo && d_q_wrong) text += " dQ's pass computes a P and a dS of its own.";
  return text;
}

std::string gradients_text(const AttentionOracleGradients& want, const std::string& in_d_q,
                           const std::string& in_d_k, const std::string& in_d_v,
                           std::optional<Passes> passes) {
  if (in_d_q.empty() && in_d_k.empty() && in_d_v.empty()) return "";
  std::string text;
  if (passes) text = pointed_to(want, !in_d_q.empty(), !in_d_k.empty(), !in_d_v.empty(), *passes);
  for (const auto& [name, found] : {std::pair{"dQ", &in_d_q}, {"dK", &in_d_k}, {"dV", &in_d_v}})
    if (!found->empty()) text += (text.empty() ? "" : "\n") + std::string(name) + ": " + *found;
  return text;
}

double loss(const AttentionInputs<double>& inputs, const Tensor<double, 4>& d_out,
            const AttentionOptions& options) {
  const auto out = inputs.forward(options, Magnitudes::kLeftOut).out.value;
  double sum = 0;
  for (Index i = 0; i < out.size(); ++i) sum += out.data()[i] * d_out.data()[i];
  return sum;
}

Verdict hold_along_a_direction(const AttentionInputs<double>& inputs,
                               const AttentionInputs<double>& d, const Tensor<double, 4>& d_out,
                               const AttentionOptions& options, std::uint64_t seed, double most) {
  constexpr Tensor<double, 4> AttentionInputs<double>::*kEach[] = {
      &AttentionInputs<double>::q, &AttentionInputs<double>::k, &AttentionInputs<double>::v};
  const AttentionInputs<double> way{normal<double>(inputs.q.shape(), 2000 + seed),
                                    normal<double>(inputs.k.shape(), 2001 + seed),
                                    normal<double>(inputs.v.shape(), 2002 + seed)};
  const auto loss_at = [&](double step) {
    AttentionInputs<double> moved = inputs;
    for (const auto x : kEach)
      for (Index i = 0; i < (moved.*x).size(); ++i)
        (moved.*x).data()[i] += step * (way.*x).data()[i];
    return loss(moved, d_out, options);
  };
  double said = 0;
  for (const auto x : kEach)
    for (Index i = 0; i < (d.*x).size(); ++i) said += (d.*x).data()[i] * (way.*x).data()[i];
  constexpr double kStep = 1e-5;
  const double change = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
  if (std::fabs(change - said) <= most) return {true, ""};
  return {false, "Along a random direction the output changes by " + std::to_string(change) +
                     "; the gradients say " + std::to_string(said) + "."};
}

Verdict grows_no_faster(Index sequence, std::size_t few, std::size_t many, std::size_t most,
                        const std::string& matrix) {
  const std::string text = std::to_string(few) + " extra bytes for a sequence of " +
                           std::to_string(sequence) + ", " + std::to_string(many) + " for " +
                           std::to_string(4 * sequence);
  if (many <= most) return {true, text};
  return {false, text + ": the memory grows faster than the sequence. " + matrix + " " +
                     std::to_string(16 * sequence * sequence * sizeof(float)) + "."};
}

template <class T>
std::string wrong_delta(TensorView<const float, 3> delta, TensorView<const T, 4> out,
                        TensorView<const T, 4> d_out) {
  Tensor<double, 3> want(delta.shape()), magnitude(delta.shape());
  for (Index b = 0; b < out.extent(0); ++b)
    for (Index h = 0; h < out.extent(1); ++h)
      for (Index i = 0; i < out.extent(2); ++i)
        for (Index c = 0; c < out.extent(3); ++c) {
          const double term =
              static_cast<double>(out(b, h, i, c)) * static_cast<double>(d_out(b, h, i, c));
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

template std::string wrong_delta(TensorView<const float, 3>, TensorView<const float, 4>,
                                 TensorView<const float, 4>);
template std::string wrong_delta(TensorView<const float, 3>, TensorView<const Half, 4>,
                                 TensorView<const Half, 4>);
template std::string wrong_delta(TensorView<const float, 3>, TensorView<const BFloat16, 4>,
                                 TensorView<const BFloat16, 4>);

}  // namespace flash::harness
