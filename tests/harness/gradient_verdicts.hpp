// What graded cases of a backward pass say of its results, whatever part they belong to.
#pragma once

#include <optional>
#include <string>

#include "harness/attention_data.hpp"
#include "harness/graded_case.hpp"

namespace flash::harness {

// Whether all gradients come of one P and one dS, or dQ has a pass of its own, which computes both
// again.
enum class Passes { kOne, kTwo };

// What it points to that these gradients are wrong and the others are not. At least one is. ""
// where it says nothing, since another mistake would leave the others right too: where elements
// have to be NaN, or all of a gradient 0 (one key).
std::string pointed_to(const AttentionOracleGradients& want, bool d_q_wrong, bool d_k_wrong,
                       bool d_v_wrong, Passes passes);

// What is wrong with gradients, from what is wrong with each ("" when nothing is): what it points
// to first, unless `passes` is nothing.
std::string gradients_text(const AttentionOracleGradients& want, const std::string& in_d_q,
                           const std::string& in_d_k, const std::string& in_d_v,
                           std::optional<Passes> passes);

// `delta` against the sums over a row of out * d_out, in float64; "" when it is right. T is float,
// Half or BFloat16.
template <class T>
std::string wrong_delta(TensorView<const float, 3> delta, TensorView<const T, 4> out,
                        TensorView<const T, 4> d_out);

// sum(out * d_out) of the oracle, which the gradients are of.
double loss(const AttentionInputs<double>& inputs, const Tensor<double, 4>& d_out,
            const AttentionOptions& options);

// Whether the loss changes along a random direction as the gradients `d` say, but for `most`: the
// adjoint identity, at a length where nobody looks at each element.
Verdict hold_along_a_direction(const AttentionInputs<double>& inputs,
                               const AttentionInputs<double>& d, const Tensor<double, 4>& d_out,
                               const AttentionOptions& options, std::uint64_t seed, double most);

// Of calls with a short sequence and one of four times its length, the bytes that they hold beyond
// their arguments. `matrix` is what must not be held, with its size: "P of one head is 4194304".
Verdict grows_no_faster(Index sequence, std::size_t few, std::size_t many, std::size_t most,
                        const std::string& matrix);

}  // namespace flash::harness
