// Inputs of softmax(X) V on the host, and the check of its results.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarking/core.hpp"
#include "common/softmax_matmul.hpp"

namespace flash {

// x and v, seeded N(0, 1). `with_graded` puts into a quarter of the rows, and at least into two
// pieces of kPiece, what graded cases have: scores that need their maximum, and -inf.
struct SoftmaxMatmulInputs {
  static constexpr Index kPiece = 64;  // rows that are drawn and compared together

  SoftmaxMatmulInputs(const SoftmaxMatmulShape& of_problem, std::uint64_t seed,
                      bool with_graded = false);

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
