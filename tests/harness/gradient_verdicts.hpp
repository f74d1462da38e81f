// What graded cases of a backward pass say of its results, whatever part they belong to.
#pragma once

#include <string>

#include "common/oracle.hpp"
#include "common/tensor.hpp"

namespace flash::harness {

// Whether all gradients come of one P and one dS, or dQ has a pass of its own, which computes both again.
enum class Passes { kOne, kTwo };

// Whether it says where to look, which gradients are wrong: not where right elements are NaN, which P or dS would hide in, nor
// where a gradient is 0 whatever they are (one key).
bool tell_apart(const WithMagnitude& d_q, const WithMagnitude& d_k, const WithMagnitude& d_v);

// What it points to that these gradients are wrong and the others are not. At least one is.
std::string pointed_to(bool d_q_wrong, bool d_k_wrong, bool d_v_wrong, Passes passes);

// `delta` against the sums over a row of out * d_out, in float64; "" when it is right. T is float, Half or BFloat16.
template <class T>
std::string wrong_delta(TensorView<const float, 3> delta, TensorView<const T, 4> out, TensorView<const T, 4> d_out);

}  // namespace flash::harness
