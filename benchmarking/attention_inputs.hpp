// One attention problem on the host: its inputs, its operations, and the check of its results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarking/core.hpp"
#include "common/attention.hpp"
#include "common/half.hpp"
#include "common/oracle.hpp"
#include "common/registry.hpp"

namespace flash {

// What one head's results have to be.
struct HeadOracle {
  WithMagnitude out, d_q, d_k, d_v;
  double largest_score = 0;
};

// q, k, v and d_out, seeded N(0, 1), but q N(0, query_scale^2): 8 makes sharp softmaxes. T is
// float, double, Half or BFloat16, and as many queries as keys.
template <class T>
struct AttentionInputs {
  // Without `with_backward` there is no d_out, and only out is checked. Throws OutOfMemory.
  AttentionInputs(const AttentionProblem& wanted, std::uint64_t seed, Index query_scale = 1,
                  bool with_backward = true);

  const AttentionProblem problem;
  Tensor<T, 4> q, k, v, d_out;

  // Computes what the results of the heads that are compared have to be: 10 s and more where there
  // are many keys. Call it before the checks.
  void prepare_check();

  // Fill the outputs with poison<T>() before the call that is checked.
  Verdict check_forward(TensorView<const T, 4> out) const;
  Verdict check_backward(TensorView<const T, 4> d_q, TensorView<const T, 4> d_k,
                         TensorView<const T, 4> d_v) const;

 private:
  Verdict check(const std::string& name, const std::string& rows, TensorView<const T, 4> got,
                WithMagnitude HeadOracle::*want, double bound) const;

  const bool backward_;
  std::vector<HeadOracle> heads_;  // the last ones
  double largest_score_ = 0;
};

}  // namespace flash
