// What graded cases of a backward pass say of its results, whatever part they belong to.
#pragma once

#include <string>

#include "common/oracle.hpp"
#include "common/tensor.hpp"

namespace flash::harness {

// Whether all gradients come of one P and one dS, or dQ has a pass of its own, which computes both again.
enum class Passes { kOne, kTwo };

// What it points to that these gradients are wrong and the others are not. At least one is. "" where it says nothing, since
// another mistake would leave the others right too: where elements have to be NaN, or all of a gradient 0 (one key).
std::string pointed_to(const AttentionOracleGradients& want, bool d_q_wrong, bool d_k_wrong, bool d_v_wrong, Passes passes);

// `delta` against the sums over a row of out * d_out, in float64; "" when it is right. T is float, Half or BFloat16.
template <class T>
std::string wrong_delta(TensorView<const float, 3> delta, TensorView<const T, 4> out, TensorView<const T, 4> d_out);

}  // namespace flash::harness
