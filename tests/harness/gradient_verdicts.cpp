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
