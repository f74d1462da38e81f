// Attention problems of graded cases, whatever part they belong to: data that is hard in a known
// way, and what compares outputs with the oracle's. T is float, double, Half or BFloat16.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common/attention.hpp"
#include "common/compare.hpp"
#include "common/half.hpp"
#include "common/heads.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "harness/cases/graded_case.hpp"

namespace flash::harness {

// What makes the scores of a problem hard; v is N(0, 1) where nothing else is said.
enum class Data {
  kNormal,        // N(0, 1)
  kHalfNormal,    // N(0, 0.5^2), v too: what the course's sources take
  kLargeScores,   // scores to about +-200: exp overflows and underflows unless the maximum is
                  // subtracted
  kRising,        // every row rises by 300: each block of keys brings a new maximum, and exp of a
                  // score less the first block's maximum overflows
  kVeryNegative,  // scores near -1000: exp gives 0 for a whole row unless the maximum is subtracted
  kEqual,         // all scores of a row are equal: every visible key weighs the same
  kOneHot,        // each query is close to one key, and its row of P is close to one 1
  kSignature,  // equal scores; row j of v has 1 + (j mod 13) / 13 in column j mod head_dim, else 0:
               // shows which keys were counted
  kMinusInfinity,  // the first third of the keys has scores of -inf, in the last head all keys:
                   // forward only (dQ would be 0 * inf)
  kLowest,  // scores of -1.2e9, all equal: less than what a running maximum may start at, or a mask
            // may put in place of -inf (Pattern::kLowest says why not less). Forward only, float32
            // or wider
  kTiny,
  kHuge,  // 2^-40 and 2^40 times N(0, 1) in q and k, for a scale that makes up for it
  kEdge,  // scores of 2^127 for the first key and of -2^127 for the others, times the scale, which
          // has to be 1 or -1. Forward only, float32 or wider
  kFarApart,  // each row's scores are near 150 or near -150: of two rows whose distance is a power
              // of 2 some differ by 300
  kSmallIntegers,  // N(0, 1) rounded, v too: what one can follow by hand
  kNaN,  // N(0, 1) with a NaN in one element of v in each head: the rows that see it become NaN
  kNaNInScores,  // N(0, 1) with a NaN in one element of q and one of k in each head
};

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

// N(0, 1), or small integers where the inputs are: what flows into a backward pass.
template <class T>
Tensor<T, 4> make_d_out(const AttentionShape& shape, Data data, std::uint64_t seed) {
  Tensor<T, 4> d_out = normal<T>(shape.of_queries(), 1000 + seed);
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
