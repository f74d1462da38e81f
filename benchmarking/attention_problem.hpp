// The inputs of one attention problem on the host, how many operations it takes, and the check of its results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarking/head_oracle.hpp"
#include "common/attention.hpp"
#include "common/half.hpp"

namespace flash {

// Self-attention: as many queries as keys.
struct AttentionSizes {
  Index batch = 1, heads = 1, seq_len = 1, head_dim = 1;
  bool causal = false;

  AttentionShape shape() const { return {batch, heads, seq_len, seq_len, head_dim}; }
  AttentionOptions options() const { return {.causal = causal}; }
  Index d_model() const { return heads * head_dim; }

  // Pairs of a query and a key that it sees, in one head.
  double visible_pairs() const {
    const double n = static_cast<double>(seq_len);
    return causal ? n * (n + 1) / 2 : n * n;
  }

  // Of the products, a multiplication and an addition each: Q K^T and P V; the backward pass has Q K^T again, P^T dO, dO V^T,
  // dS K and dS^T Q. Standard attention does four of those five, having kept P: its rate is given for the same work, so that
  // rates compare like times. The softmax is not counted.
  double forward_flops() const { return 4 * visible_pairs() * static_cast<double>(batch * d_model()); }
  double backward_flops() const { return 10 * visible_pairs() * static_cast<double>(batch * d_model()); }
};

// q, k, v and d_out (batch, heads, seq_len, head_dim), seeded N(0, 1). T is float, double, Half or BFloat16.
template <class T>
class AttentionProblem {
 public:
  // Throws OutOfMemory.
  AttentionProblem(const AttentionSizes& sizes, std::uint64_t seed);

  const AttentionSizes& sizes() const { return sizes_; }
  TensorView<const T, 4> q() const { return q_.view(); }
  TensorView<const T, 4> k() const { return k_.view(); }
  TensorView<const T, 4> v() const { return v_.view(); }
  TensorView<const T, 4> d_out() const { return d_out_.view(); }
  std::size_t bytes() const { return 4 * sizeof(T) * static_cast<std::size_t>(q_.size()); }

  // Computes what the results have to be: in float64, on all processors, 10 s and more where there are many keys. Call it
  // before the checks. Of heads (a batch's heads are heads of their own) the last ones are compared with it, as many as about
  // half a second allows and at least one; of the others each element has to be finite.
  void prepare_check();

  // Empty when right, else what is wrong, in one line. Fill the outputs with poison<T>() before the call that is checked.
  std::string check_forward(TensorView<const T, 4> out) const;
  std::string check_backward(TensorView<const T, 4> d_q, TensorView<const T, 4> d_k, TensorView<const T, 4> d_v) const;

 private:
  std::string check(const std::string& name, const std::string& rows, TensorView<const T, 4> got,
                    HeadOracle::Result HeadOracle::*want, double bound) const;

  AttentionSizes sizes_;
  Tensor<T, 4> q_, k_, v_, d_out_;
  std::vector<HeadOracle> heads_;  // the last ones
  double largest_score_ = 0;
};

}  // namespace flash
