// The float64 oracle of one head of attention, on all processors and without a large matrix: for a head of many keys, where
// common/oracle.hpp, plain as it is, would keep all of P (2 GiB for 16384 keys) and take minutes.
#pragma once

#include "common/tensor.hpp"

namespace flash {

struct HeadOracle {
  // (queries, head_dim) of out and d_q, (keys, head_dim) of d_k and d_v; magnitude as WithMagnitude of common/oracle.hpp.
  struct Result {
    Tensor<double, 2> value, magnitude;
  };
  Result out, d_q, d_k, d_v;
  Tensor<double, 1> lse;
  double largest_score = 0;
};

enum class HeadPasses { kForward, kBackward, kBoth };

// q and d_out are (1, 1, queries, head_dim), k and v (1, 1, keys, head_dim). kForward gives out, lse and largest_score and does
// not look at d_out; kBackward gives the gradients; the others stay 0. T is float, double, Half or BFloat16.
template <class T>
HeadOracle head_oracle(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<const T, 4> d_out,
                       bool causal, HeadPasses passes);

}  // namespace flash
