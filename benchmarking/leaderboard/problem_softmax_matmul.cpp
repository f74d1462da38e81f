// Part 1's problem on a CPU: softmax(X) V in float32.
#include <cmath>

#include "benchmarking/core.hpp"
#include "benchmarking/leaderboard/host.hpp"
#include "common/compare.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash::leaderboard {
namespace {

class SoftmaxMatmulProblem final : public Problem {
 public:
  explicit SoftmaxMatmulProblem(const SoftmaxMatmulShape& shape) : shape_(shape) {}

  Strings passes() const override { return {"forward"}; }
  double flops(std::size_t) const override { return softmax_matmul_flops(shape_); }
  double bytes(std::size_t) const override { return softmax_matmul_bytes(shape_); }

  void draw(std::uint64_t seed) override {
    x_ = make_input<3>(shape_.of_x(), Pattern::kNormal, 2 * seed);
    v_ = make_input<3>(shape_.of_v(), Pattern::kNormal, 2 * seed + 1);
    want_ = softmax_matmul_oracle<float>(x_.view(), v_.view());
    magnitude_ = softmax_matmul_magnitude<float>(x_.view(), v_.view());
    largest_score_ = 0;
    for (Index i = 0; i < x_.size(); ++i)
      largest_score_ = std::max(largest_score_, std::fabs(static_cast<double>(x_.data()[i])));
  }

  grading::Call call(std::size_t) override {
    out_ = Tensor<float, 3>(shape_.of_out());
    fill_with_nan(out_);
    const SoftmaxMatmulBlocks blocks;
    const TensorView<const float, 3> x = x_.view(), v = v_.view();
    return {.function = grading::kFusedSoftmaxMatmul,
            .arguments = {grading::argument("x", x), grading::argument("v", v),
                          grading::argument("out", out_.view())},
            .integers = {blocks.block_1, blocks.block_2}};
  }

  std::string wrong(std::size_t) const override {
    const double bound = softmax_matmul_bound(shape_.d2, largest_score_);
    return verdict_of(compare<3>(out_.view(), want_,
                                 {.max_scaled = bound,
                                  .max_frobenius = frobenius_bound(bound, want_, magnitude_),
                                  .axes = {"batch", "row", "column"},
                                  .blocks = {},
                                  .magnitude = magnitude_.data()}),
                      "out: ")
        .wrong;
  }

 private:
  const SoftmaxMatmulShape shape_;
  Tensor<float, 3> x_, v_, out_;
  Tensor<double, 3> want_, magnitude_;
  double largest_score_ = 0;
};

}  // namespace

std::unique_ptr<Problem> softmax_matmul_on_host(const Shape<4>& sizes) {
  return std::make_unique<SoftmaxMatmulProblem>(
      SoftmaxMatmulShape{sizes[0], sizes[1], sizes[2], sizes[3]});
}

}  // namespace flash::leaderboard
