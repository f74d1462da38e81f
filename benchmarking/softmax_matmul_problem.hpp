// The inputs of one softmax-matmul on the host or on the GPU, the functions of part 1 on them, and the check of their result.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/tensor.hpp"

namespace flash {

// x (batch, d1, d2), v (batch, d2, d3), out (batch, d1, d3); float32, seeded N(0, 1).
struct SoftmaxMatmulSizes {
  Index batch = 0, d1 = 0, d2 = 0, d3 = 0;

  Shape<3> x() const { return {batch, d1, d2}; }
  Shape<3> v() const { return {batch, d2, d3}; }
  Shape<3> out() const { return {batch, d1, d3}; }

  // Of the product, a multiplication and an addition each; the softmax is not counted.
  double flops() const { return 2.0 * batch * d1 * d2 * d3; }
};

class SoftmaxMatmulProblem {
 public:
  virtual ~SoftmaxMatmulProblem() = default;

  virtual void unfused() = 0;
  virtual void fused(Index block) = 0;  // block_1 = block_2 = block

  // The check looks at sampled rows of `out`: spoil_output() fills them with poison(), check() compares them with the float64
  // oracle. check() gives an empty text when they agree; else what is wrong, in one line.
  void spoil_output();
  std::string check() const;

 protected:
  // Chooses the rows and computes what they have to be: once for all functions, since it may take a second.
  void prepare_check(const Tensor<float, 3>& x, const Tensor<float, 3>& v, std::uint64_t seed);

  // One row of `out`, d3 floats.
  virtual void write_output(Index batch, Index row, const float* values) = 0;
  virtual void read_output(Index batch, Index row, float* values) const = 0;

 private:
  struct Sample {
    Index batch, row;
    Tensor<double, 3> want, magnitude;  // (1, 1, d3)
  };
  std::vector<Sample> samples_;
  Index d2_ = 0;  // the bound depends on it
};

// `device` is "cuda" or "cpu", of a build and a machine that have it. Throws OutOfMemory.
std::unique_ptr<SoftmaxMatmulProblem> make_softmax_matmul_problem(const std::string& device, const SoftmaxMatmulSizes& sizes,
                                                                  std::uint64_t seed);

}  // namespace flash
