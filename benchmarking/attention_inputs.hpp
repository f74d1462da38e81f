// One attention problem on the host: its inputs, its operations, and the check of its results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarking/core.hpp"
#include "common/attention.hpp"
#include "common/half.hpp"
#include "common/oracle.hpp"

namespace flash {

// Self-attention: as many queries as keys.
struct AttentionSizes {
  Index batch = 1, heads = 1, seq_len = 1, head_dim = 1;
  bool causal = false;
  Index query_scale = 1;  // standard deviation of q: 8 makes sharp softmaxes

  AttentionShape shape() const { return {batch, heads, seq_len, seq_len, head_dim}; }
  Index d_model() const { return heads * head_dim; }

  // Pairs of a query and a key that it sees, in one head.
  double visible_pairs() const;

  // Of both passes, as README.md counts them: Q K^T and P V; then Q K^T again, P^T dO, dO V^T, dS K
  // and dS^T Q.
  double flops() const { return 14 * visible_pairs() * static_cast<double>(batch * d_model()); }
};

// What one head's results have to be.
struct HeadOracle {
  WithMagnitude out, d_q, d_k, d_v;
  double largest_score = 0;
};

// q, k, v and d_out (batch, heads, seq_len, head_dim), seeded N(0, 1), but for q. T is float,
// double, Half or BFloat16.
template <class T>
struct AttentionInputs {
  // Without `with_backward` there is no d_out, and only out is checked. Throws OutOfMemory.
  AttentionInputs(const AttentionSizes& wanted, std::uint64_t seed, bool with_backward = true);

  const AttentionSizes sizes;
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
