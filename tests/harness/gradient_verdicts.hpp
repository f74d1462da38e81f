// What graded cases of a backward pass say of its results, whatever part they belong to.
#pragma once

#include <string>

#include "harness/attention_data.hpp"
#include "harness/graded_case.hpp"

namespace flash::harness {

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
