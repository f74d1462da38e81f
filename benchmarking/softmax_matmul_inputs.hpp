// Inputs of softmax(X) V on the host, and the check of its results.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "benchmarking/core.hpp"
#include "common/softmax_matmul.hpp"

namespace flash {

// x and v, seeded N(0, 1), or from elsewhere.
struct SoftmaxMatmulInputs {
  SoftmaxMatmulInputs(const SoftmaxMatmulShape& of_problem, std::uint64_t seed);
  SoftmaxMatmulInputs(const SoftmaxMatmulShape& of_problem, Tensor<float, 3> of_x,
                      Tensor<float, 3> of_v)
      : shape(of_problem), x(std::move(of_x)), v(std::move(of_v)), seed_(0) {}

  const SoftmaxMatmulShape shape;
  Tensor<float, 3> x, v;

  // Computes what the rows that are compared have to be. Call it before check(). Without
  // `of_all_rows` these are some rows of up to three batches.
  void prepare_check(bool of_all_rows = false);

  // Fill `out` with poison() before the call that is checked.
  Verdict check(TensorView<const float, 3> out) const;

 private:
  struct Rows {
    Index batch, first, count;
    Tensor<double, 3> want = {}, magnitude = {};  // (1, count, d3)
    double bound = 0;
  };
  std::vector<Rows> rows_;
  const std::uint64_t seed_;
};

}  // namespace flash
