// One attention problem on the host: its inputs, its operations, and the check of its results.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "benchmarking/core.hpp"
#include "common/attention.hpp"
#include "common/half.hpp"
#include "common/oracle.hpp"
#include "common/registry.hpp"

namespace flash {

// What one head's results have to be. Its bounds follow from its largest score.
struct HeadOracle {
  WithMagnitude out, d_q, d_k, d_v;  // (1, 1, rows, head_dim)
  WithMagnitude lse;                 // (1, 1, queries, 1), without magnitudes
  double largest_score = 0;
};

// q, k, v and d_out, seeded N(0, 1), but q N(0, query_scale^2): 8 makes sharp softmaxes. T is
// float, double, Half or BFloat16.
template <class T>
struct AttentionInputs {
  // Without `with_backward` there is no d_out, and only out is checked. Throws OutOfMemory.
  AttentionInputs(const AttentionProblem& wanted, std::uint64_t seed, Index query_scale = 1,
                  bool with_backward = true);
  // Of tensors from elsewhere.
  AttentionInputs(const AttentionProblem& of, Tensor<T, 4> of_q, Tensor<T, 4> of_k,
                  Tensor<T, 4> of_v, Tensor<T, 4> of_d_out)
      : problem(of),
        q(std::move(of_q)),
        k(std::move(of_k)),
        v(std::move(of_v)),
        d_out(std::move(of_d_out)),
        backward_(d_out.size() > 0) {}

  const AttentionProblem problem;
  Tensor<T, 4> q, k, v, d_out;

  // Computes what the results of the heads that are compared have to be: 10 s and more where there
  // are many keys. Call it before the checks. Those are the last heads, as many as half a second
  // allows and at least one, or all.
  void prepare_check(bool of_all_heads = false);
  const std::vector<HeadOracle>& oracle() const { return heads_; }

  // Fill the outputs with poison<T>() before the call that is checked.
  Verdict check_forward(TensorView<const T, 4> out) const;
  Verdict check_backward(TensorView<const T, 4> d_q, TensorView<const T, 4> d_k,
                         TensorView<const T, 4> d_v) const;
  Verdict check_lse(TensorView<const LseType<T>, 3> lse) const;

 private:
  template <class U>
  Verdict check(const std::string& name, const std::string& rows, TensorView<const U, 4> got,
                WithMagnitude HeadOracle::*want,
                double (*bound)(const AttentionShape& shape, double largest_score)) const;

  const bool backward_;
  std::vector<HeadOracle> heads_;
};

}  // namespace flash
