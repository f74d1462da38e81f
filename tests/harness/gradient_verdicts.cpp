// Implements gradient_verdicts.hpp.
#include "harness/gradient_verdicts.hpp"

#include <cmath>

#include "common/compare.hpp"
#include "common/half.hpp"

namespace flash::harness {

std::string gradients_text(const std::string& in_d_q, const std::string& in_d_k,
                           const std::string& in_d_v) {
  std::string text;
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
