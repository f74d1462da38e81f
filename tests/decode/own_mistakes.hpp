// Names mistakes of decoding: compares a wrong result with attention in float64 in which one step
// is replaced by a wrong one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/tensor.hpp"
#include "harness/diagnosis/diagnosis.hpp"

namespace flash::decode_cases {

// What a call was given and what it left, in float64.
struct SeenDecode {
  Tensor<double, 4> q, k, v, out;
  Tensor<double, 3> lse;
  Tensor<std::int32_t, 2> block_table;
  Tensor<std::int32_t, 1> lengths;
  double scale, bound, lse_bound;
};

// The mistake that explains the result, if it is the only one that is known to, and if it also
// explains what `again` gives, a call with other numbers.
harness::Diagnosis diagnosis(const SeenDecode& seen, const std::function<SeenDecode()>& again);

}  // namespace flash::decode_cases
