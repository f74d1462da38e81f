// The boards of a CPU: the benchmarks' inputs and their check, here of all heads and all rows.
#include <algorithm>
#include <cmath>
#include <optional>

#include "benchmarking/attention_inputs.hpp"
#include "benchmarking/leaderboard/problem.hpp"
#include "benchmarking/processor.hpp"
#include "benchmarking/softmax_matmul_inputs.hpp"
#include "common/error.hpp"
#include "common/inputs.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash::leaderboard {
namespace {

template <int Rank>
TensorView<float, Rank> full_of_nan(Tensor<float, Rank>& tensor) {
  std::fill_n(tensor.data(), tensor.size(), poison<float>());
  return tensor.view();
}

class AttentionOnHost final : public Problem {
 public:
  AttentionOnHost(const AttentionProblem& problem, bool with_backward)
      : problem_(problem), with_backward_(with_backward) {
    for (auto* tensor : {&out_, &right_out_, &d_q_})
      *tensor = Tensor<float, 4>(shape_.of_queries());
    for (auto* tensor : {&d_k_, &d_v_}) *tensor = Tensor<float, 4>(shape_.of_keys());
    for (auto* tensor : {&lse_, &right_lse_}) *tensor = Tensor<float, 3>(shape_.of_rows());
  }

  void draw(std::uint64_t seed) override {
    x_.emplace(problem_, seed, 1, with_backward_);
    mix_in_graded(seed);
    x_->prepare_check(true);
    float *out = right_out_.data(), *lse = right_lse_.data();
    for (const HeadOracle& head : x_->oracle()) {
      out = std::copy_n(head.out.value.data(), head.out.value.size(), out);
      lse = std::copy_n(head.lse.value.data(), head.lse.value.size(), lse);
    }
  }

  grading::Call call(std::size_t pass) override {
    if (pass == 0) {
      const AttentionBlocks blocks;
      return grading::call_of(
          grading::kAttentionForward,
          AttentionForward<float>{x_->q.view(), x_->k.view(), x_->v.view(), full_of_nan(out_),
                                  full_of_nan(lse_), problem_.options},
          {blocks.queries, blocks.keys});
    }
    return grading::call_of(
        grading::kAttentionBackward,
        AttentionBackward<float>{x_->q.view(), x_->k.view(), x_->v.view(), right_out_.view(),
                                 right_lse_.view(), x_->d_out.view(), full_of_nan(d_q_),
                                 full_of_nan(d_k_), full_of_nan(d_v_), problem_.options},
        {16});
  }

  std::string wrong(std::size_t pass) const override {
    if (pass == 1) return x_->check_backward(d_q_.view(), d_k_.view(), d_v_.view()).wrong;
    Verdict verdict = x_->check_forward(out_.view());
    verdict.add(x_->check_lse(lse_.view()));
    return verdict.wrong;
  }

 private:
  // In a quarter of the heads the first columns of q and k make scores that need their maximum: far
  // apart from row to row, very negative, or with a step, so that late keys bring a new one. No
  // weight is a denormal number, which some processors compute slowly.
  void mix_in_graded(std::uint64_t seed) {
    Random random(seed);
    const float root = std::sqrt(static_cast<float>(shape_.head_dim));
    for (Index b = 0; b < shape_.batch; ++b)
      for (Index h = 0; h < shape_.heads; ++h) {
        const Index kind = random.below(12);
        for (Index i = 0; kind < 3 && i < shape_.queries; ++i)
          x_->q(b, h, i, 0) = kind == 0 && is_high(i) ? -root : root;
        for (Index j = 0; kind < 3 && j < shape_.keys; ++j)
          x_->k(b, h, j, 0) = kind == 0 ? 150 : kind == 1 ? -200 : 2 * j < shape_.keys ? -75 : 75;
      }
  }

  const AttentionProblem problem_;
  const AttentionShape& shape_ = problem_.shape;
  const bool with_backward_;
  std::optional<AttentionInputs<float>> x_;
  Tensor<float, 4> out_, right_out_, d_q_, d_k_, d_v_;
  Tensor<float, 3> lse_, right_lse_;
};

class SoftmaxMatmulOnHost final : public Problem {
 public:
  explicit SoftmaxMatmulOnHost(const SoftmaxMatmulShape& shape)
      : shape_(shape), out_(shape.of_out()) {}

  void draw(std::uint64_t seed) override {
    x_.emplace(shape_, seed, true);
    x_->prepare_check(true);
  }
  grading::Call call(std::size_t) override {
    const SoftmaxMatmulBlocks blocks;
    return grading::call_of(grading::kFusedSoftmaxMatmul,
                            SoftmaxMatmul<float>{x_->x.view(), x_->v.view(), full_of_nan(out_)},
                            {blocks.block_1, blocks.block_2});
  }
  std::string wrong(std::size_t) const override { return x_->check(out_.view()).wrong; }

 private:
  const SoftmaxMatmulShape shape_;
  std::optional<SoftmaxMatmulInputs> x_;
  Tensor<float, 3> out_;
};

}  // namespace

std::unique_ptr<Problem> make_problem(const AttentionProblem& problem, bool with_backward) {
  if (problem.dtype != DType::kFloat32)
    throw ArgumentError("dtype is " + to_string(problem.dtype) + "; on a CPU it must be float32");
  return std::make_unique<AttentionOnHost>(problem, with_backward);
}

std::unique_ptr<Problem> make_problem(const SoftmaxMatmulShape& shape) {
  return std::make_unique<SoftmaxMatmulOnHost>(shape);
}

std::unique_ptr<grading::CallMemory> memory_of_calls() { return grading::memory_of_host(); }

// Of one core. Its peak: independent fused multiply-adds on registers, in the widest vectors that a
// student's file is compiled for.
Rates rates_now() {
  return {.peak_gflops = native_peak_gflops(DType::kFloat32, 1, 1),
          .bandwidth_gbs = read_bandwidth_gbs()};
}

}  // namespace flash::leaderboard
