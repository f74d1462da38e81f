// The one ground truth: the textbook formula in float64, slow and plain. Every check compares with
// it.
#pragma once

#include "common/attention.hpp"
#include "common/decode.hpp"
#include "common/softmax_matmul.hpp"
#include "common/tensor.hpp"

namespace flash {

// softmax(x) along `axis` (0, 1, 2, or -1 for the last), in float64.
//   x (d0, d1, d2) -> (d0, d1, d2)
// A slice of nothing but -inf gives zeros; a NaN makes its slice NaN. Throws ArgumentError for
// another axis.
template <class T>
FLASH_EXPORT Tensor<double, 3> softmax_oracle(TensorView<const T, 3> x, int axis = -1);

// softmax(x, axis) v in float64.
//   x (batch, d1, d2), v (batch, d2, d3) -> (batch, d1, d3)
// Throws ShapeError when the shapes do not fit.
template <class T>
FLASH_EXPORT Tensor<double, 3> softmax_matmul_oracle(TensorView<const T, 3> x,
                                                     TensorView<const T, 3> v, int axis = -1);

// softmax(x, axis) |v|: how large the terms are whose sum is the result. Rounding errors are small
// beside this, even where the terms cancel and the result is close to 0.
template <class T>
FLASH_EXPORT Tensor<double, 3> softmax_matmul_magnitude(TensorView<const T, 3> x,
                                                        TensorView<const T, 3> v, int axis = -1);

// The largest error of softmax_matmul's result that float32 explains, beside
// softmax_matmul_magnitude(), for scores of at most `largest_score` in size. With u = 2^-24, the
// unit roundoff:
//   exp       4 u for the function, and u |x| for its argument, whether it is rounded as x - m or as x * log2(e)
//   sums      u sqrt(d2) for l and for o: rounding errors of d2 additions, which do not all point the same way
//   rescaling u sqrt(d2 / block_2) for the factors alpha
// in sum u (8 + 2 max|x| + 4 sqrt(d2)). Part 1's CPU solution stays below a third of it.
FLASH_EXPORT double softmax_matmul_bound(Index d2, double largest_score);

// ---- Attention (attention.hpp has the problem) --------------------------------------------------

// A result and how large the terms are whose sum it is: rounding errors are small beside the
// magnitude.
struct WithMagnitude {
  Tensor<double, 4> value;
  Tensor<double, 4> magnitude;
};

struct AttentionOracle {
  WithMagnitude out;  // magnitude: P |V|
  Tensor<double, 3> lse;
  double largest_score =
      0;  // the largest scale * sum over c of |q(i, c) k(j, c)| of a visible pair that is finite
};

// Left out, the magnitudes and largest_score are 0: for who has no use for them, and calls often.
enum class Magnitudes { kWanted, kLeftOut };

// Standard attention in float64. Throws ShapeError and ArgumentError as attention.hpp says. Of rows
// cut out of a longer q, first_query is the number of the first: the causal mask counts from there.
template <class T>
FLASH_EXPORT AttentionOracle attention_oracle(TensorView<const T, 4> q, TensorView<const T, 4> k,
                                              TensorView<const T, 4> v,
                                              const AttentionOptions& options = {},
                                              Magnitudes magnitudes = Magnitudes::kWanted,
                                              Index first_query = 0);

// Attention over a cache in pages (decode.hpp), with pass.k, .v, .block_table and .lengths in host
// memory; out and lse are not looked at. Magnitudes are wanted.
template <class T>
FLASH_EXPORT AttentionOracle decode_oracle(const Decode<T>& pass);

// The gradients of attention for the upstream gradient d_out of out, by the textbook's formulas
// (Dao et al. 2022, arXiv:2205.14135, appendix B.2):
//   dV = P^T dO      dP = dO V^T      delta = rowsum(P * dP)      dS = P * (dP - delta)      dQ = scale dS K      dK = scale
//   dS^T Q
// Magnitudes have |.| around each term, |delta| being rowsum(|dO| |O|): the difference in dS may
// cancel.
struct AttentionOracleGradients {
  WithMagnitude d_q, d_k, d_v;
};
template <class T>
FLASH_EXPORT AttentionOracleGradients attention_backward_oracle(
    TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
    TensorView<const T, 4> d_out, const AttentionOptions& options = {}, Index first_query = 0);

// Half the distance from 1 to the next number: 2^-24 for float, 2^-53 for double, 2^-11 for Half,
// 2^-8 for BFloat16.
template <class T>
constexpr double unit_roundoff() {
  if constexpr (sizeof(T) == 2) return T::kDigits == 10 ? 0x1p-11 : 0x1p-8;
  return sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
}

// The largest errors that computing in float32 (unit_roundoff 2^-24) or float64 (2^-53) explains,
// beside the magnitudes. With u the unit roundoff, c = head_dim, s = largest_score:
//   score   u (2 + sqrt(c)) s        head_dim products and their sums, the scale; as an error of exp's argument it is relative
//   exp     u (8 + 2 s)              the function, and S - m, S - lse or S log2(e) rounded
//   sums    4 u sqrt(n)              n additions whose errors do not all point the same way, and the rescaling between them
// The sum of these for lse; for the gradients twice that (P, and the other factor), with sums over
// queries and head_dim as well.
FLASH_EXPORT double attention_bound(const AttentionShape& shape, double largest_score,
                                    double unit_roundoff);
FLASH_EXPORT double attention_backward_bound(const AttentionShape& shape, double largest_score,
                                             double unit_roundoff);

// The largest error of `out`, beside its magnitude. A weight P (1 + e) is in the sum of products
// and in the sum that these are divided by, so out is wrong by the sum of P e (v - out): at most
// |e| (magnitude + |out|), and |out| is at most the magnitude. So what attention_bound() has for
// scores counts twice. With tensors of 16 bits all sums are in float32, and 3 u of T are added: 2
// for weights that are rounded before they meet V, 1 for the element of out that is stored. Half
// has fewer digits below 2^-14: of each weight and of out up to 2^-25 gets lost whatever the
// magnitude. The weight of an only key is 1, whatever its score.
template <class T>
double attention_output_bound(const AttentionShape& shape, double largest_score) {
  if (shape.keys == 1) largest_score = 0;
  const double u = unit_roundoff<T>(), of_sums = sizeof(T) == 2 ? unit_roundoff<float>() : u,
               bound = 2 * attention_bound(shape, largest_score, of_sums) -
                       attention_bound(shape, 0, of_sums);
  return sizeof(T) == 2 ? bound + 3 * u * (1 + u) : bound;
}

// The same of the gradients: u of T for out, which delta is computed from, for P and for dS, which
// may be rounded before they meet a tensor of T, and for the element that is stored.
template <class T>
double attention_gradient_bound(const AttentionShape& shape, double largest_score) {
  if constexpr (sizeof(T) == 2) {
    const double u = unit_roundoff<T>();
    return attention_backward_bound(shape, largest_score, unit_roundoff<float>()) + 4 * u * (1 + u);
  } else {
    return attention_backward_bound(shape, largest_score, unit_roundoff<T>());
  }
}

}  // namespace flash
