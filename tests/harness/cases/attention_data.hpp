// Attention problems of graded cases, whatever part they belong to: data that is hard in a known
// way, and what compares outputs with the oracle's. T is float, double, Half or BFloat16.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "common/attention.hpp"
#include "common/compare.hpp"
#include "common/half.hpp"
#include "common/heads.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "harness/cases/graded_case.hpp"
#include "harness/data.hpp"

namespace flash::harness {

// |got - want| <= absolute + relative * |want| for each element: what the course's sources ask for.
struct Tolerance {
  double absolute, relative;
};

template <class T>
struct AttentionInputs {
  Tensor<T, 4> q, k, v;

  // The oracle's.
  AttentionOracle forward(const AttentionOptions& options = {},
                          Magnitudes magnitudes = Magnitudes::kWanted) const {
    return attention_oracle(q.view(), k.view(), v.view(), options, magnitudes);
  }
  AttentionOracleGradients backward(const Tensor<T, 4>& d_out,
                                    const AttentionOptions& options = {}) const {
    return attention_backward_oracle(q.view(), k.view(), v.view(), d_out.view(), options);
  }
};
template <class T>
AttentionInputs<T> make_inputs(const AttentionShape& shape, Data data, std::uint64_t seed);

// The like of it, of scores that are given.
inline Pattern pattern_of_scores(Data data) {
  switch (data) {
    case Data::kLargeScores: return Pattern::kLargeLogits;
    case Data::kVeryNegative: return Pattern::kVeryNegative;
    case Data::kRising: return Pattern::kRising;
    case Data::kFarApart: return Pattern::kFarApart;
    case Data::kMinusInfinity: return Pattern::kMasked;
    case Data::kLowest: return Pattern::kLowest;
    case Data::kNaNInScores: return Pattern::kNaN;
    default: return Pattern::kNormal;
  }
}

// BFloat16 has the range of float32, and so have its sums: Half's end at 65504, and below 2^-25
// they are 0. So column c of an ordinary v is 2 to this power times N(0, 1), and that of d_out 2 to
// 20 less this power: all columns count for dQ and dK alike, which are about 2^20.
inline int exponent_of_column(Index c) { return c % 3 == 0 ? 20 : c % 3 == 1 ? -40 : 0; }

// N(0, 1), or small integers where the inputs are: what flows into a backward pass.
template <class T>
Tensor<T, 4> make_d_out(const AttentionShape& shape, Data data, std::uint64_t seed) {
  Tensor<T, 4> d_out = normal<T>(shape.of_queries(), 1000 + seed);
  if constexpr (std::is_same_v<T, BFloat16>)
    for (Index i = 0; data == Data::kNormal && i < d_out.size(); ++i)
      d_out.data()[i] = static_cast<T>(std::ldexp(static_cast<double>(d_out.data()[i]),
                                                  20 - exponent_of_column(i % shape.head_dim)));
  for (Index i = 0; data == Data::kSmallIntegers && i < d_out.size(); ++i)
    d_out.data()[i] = static_cast<T>(std::round(2 * static_cast<double>(d_out.data()[i])));
  return d_out;
}

template <class T, class From, int Rank>
Tensor<T, Rank> converted(const Tensor<From, Rank>& x) {
  Tensor<T, Rank> y(x.shape());
  for (Index i = 0; i < x.size(); ++i) y.data()[i] = static_cast<T>(x.data()[i]);
  return y;
}

// `got` against the oracle, in the words of common/compare.hpp; "" when it is within `bound` of the
// magnitude. Elements that have to be NaN have to be it. `tolerance` is asked for beside the bound.
// `rows` is what the rows are called, "query" or "key", and `block` how many belong together.
template <class T>
std::string wrong_in(TensorView<const T, 4> got, const WithMagnitude& want, double bound,
                     const std::string& rows, Index block,
                     const std::optional<Tolerance>& tolerance = std::nullopt);

// The same for lse, of which the rows that see no key are -inf. Its error is absolute: `bound`, and
// the rounding of lse itself.
template <class T>
std::string wrong_lse(TensorView<const T, 3> got, const Tensor<double, 3>& want, double bound,
                      Index block);

// What is wrong with out, or else with lse.
template <class T, class Lse>
std::string wrong_forward(TensorView<const T, 4> out, TensorView<const Lse, 3> lse,
                          const AttentionOracle& want, double bound, double lse_bound,
                          const std::string& rows, Index block,
                          const std::optional<Tolerance>& tolerance = std::nullopt) {
  std::string wrong = wrong_in<T>(out, want.out, bound, rows, block, tolerance);
  if (!wrong.empty()) return wrong;
  wrong = wrong_lse<Lse>(lse, want.lse, lse_bound, block);
  return wrong.empty() ? "" : "lse is wrong; out is right here. " + wrong;
}

// What is wrong with gradients, from what is wrong with each: "" when nothing is.
std::string gradients_text(const std::string& in_d_q, const std::string& in_d_k,
                           const std::string& in_d_v);

// `delta` against the sums over a row of out * d_out, in float64; "" when it is right. T is float,
// Half or BFloat16.
template <class T>
std::string wrong_delta(TensorView<const float, 3> delta, TensorView<const T, 4> out,
                        TensorView<const T, 4> d_out);

// Of calls with a short sequence and one of four times its length, the bytes that they hold beyond
// their arguments. `matrix` is what must not be held, with its size: "P of one head is 4194304".
Verdict grows_no_faster(Index sequence, std::size_t few, std::size_t many, std::size_t most,
                        const std::string& matrix);

}  // namespace flash::harness
