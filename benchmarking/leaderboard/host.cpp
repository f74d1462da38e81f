// The boards of a CPU: the benchmarks' inputs and their check, here of all heads and all rows.
#include <algorithm>
#include <array>
#include <optional>

#include "benchmarking/attention_inputs.hpp"
#include "benchmarking/leaderboard/problem.hpp"
#include "benchmarking/processor.hpp"
#include "benchmarking/softmax_matmul_inputs.hpp"
#include "common/error.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash::leaderboard {
namespace {

template <int Rank>
TensorView<float, Rank> full_of_nan(Tensor<float, Rank>& tensor) {
  std::fill_n(tensor.data(), tensor.size(), poison<float>());
  return tensor.view();
}

template <std::size_t Rank>
Tensor<float, int{Rank}> normal(const Cipher& cipher, std::uint64_t stream,
                                const std::array<Index, Rank>& shape) {
  Tensor<float, int{Rank}> x(shape);
  for (Index n = 0; n < cipher.blocks(x.size()); ++n)
    cipher.normal(stream, n, x.size(), [&x](Index place, float one) { x.data()[place] = one; });
  return x;
}

class AttentionOnHost final : public Problem {
 public:
  AttentionOnHost(const AttentionProblem& problem, bool with_backward, bool finite)
      : problem_(problem),
        with_backward_(with_backward),
        kinds_(finite          ? kFiniteKinds
               : with_backward ? kWithNaN
                               : kAllKinds) {
    for (auto* tensor : {&out_, &right_out_, &d_q_})
      *tensor = Tensor<float, 4>(shape_.of_queries());
    for (auto* tensor : {&d_k_, &d_v_}) *tensor = Tensor<float, 4>(shape_.of_keys());
    for (auto* tensor : {&lse_, &right_lse_}) *tensor = Tensor<float, 3>(shape_.of_rows());
  }

  void draw(const Cipher& cipher, bool in_each_part) override {
    const Shape<4> of_queries = shape_.of_queries(), of_keys = shape_.of_keys();
    x_.emplace(problem_, normal(cipher, 0, of_queries), normal(cipher, 1, of_keys),
               normal(cipher, 2, of_keys),
               with_backward_ ? normal(cipher, 3, of_queries) : Tensor<float, 4>());
    for (Index n = 0; n < x_->q.size(); ++n)
      x_->q.data()[n] *= sharpness(cipher, n / shape_.head_dim);
    for (Index head = 0; head < shape_.batch * shape_.heads; ++head) {
      const Graded kind = kind_of(cipher, head, kinds_, in_each_part);
      const Index spike = spike_of(cipher, head, shape_.keys);
      const auto put = [&](Tensor<float, 4>& x, auto graded) {
        const Index rows = x.extent(2), d = x.extent(3);
        for (Index i = 0; i < rows; ++i) {
          float& first = x.data()[(head * rows + i) * d];
          first = graded(first, i);
        }
      };
      put(x_->q, [&](float x, Index i) { return graded_query(kind, x, i, shape_.head_dim); });
      put(x_->k, [&](float x, Index j) { return graded_key(kind, x, j, shape_.keys, spike); });
    }
    const auto without_weights = [&](float* x, Index width, float value) {
      for (Index row = 0; row < shape_.batch * shape_.heads * shape_.queries; ++row)
        if (has_no_weights(row % shape_.queries) &&
            kind_of(cipher, row / shape_.queries, kinds_, in_each_part) == Graded::kNoWeights)
          std::fill_n(x + row * width, width, value);
    };
    if (with_backward_) without_weights(x_->d_out.data(), shape_.head_dim, 0);
    x_->prepare_check(true);
    float *out = right_out_.data(), *lse = right_lse_.data();
    for (const HeadOracle& head : x_->oracle()) {
      out = std::copy_n(head.out.value.data(), head.out.value.size(), out);
      lse = std::copy_n(head.lse.value.data(), head.lse.value.size(), lse);
    }
    without_weights(right_out_.data(), shape_.head_dim, 0);
    without_weights(right_lse_.data(), 1, -INFINITY);
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
  const AttentionProblem problem_;
  const AttentionShape& shape_ = problem_.shape;
  const bool with_backward_;
  const Index kinds_;
  std::optional<AttentionInputs<float>> x_;
  Tensor<float, 4> out_, right_out_, d_q_, d_k_, d_v_;
  Tensor<float, 3> lse_, right_lse_;
};

class SoftmaxMatmulOnHost final : public Problem {
 public:
  SoftmaxMatmulOnHost(const SoftmaxMatmulShape& shape, bool finite)
      : shape_(shape), kinds_(finite ? kFiniteKinds : kAllKinds), out_(shape.of_out()) {}

  void draw(const Cipher& cipher, bool in_each_part) override {
    x_.emplace(shape_, normal(cipher, 0, shape_.of_x()), normal(cipher, 1, shape_.of_v()));
    for (Index row = 0; row < shape_.batch * shape_.d1; ++row) {
      const Graded kind = kind_of(cipher, row / kRowsOfAKind, kinds_, in_each_part);
      const float sharp = sharpness(cipher, row);
      const Index spike = spike_of(cipher, row, shape_.d2);
      float* const x = x_->x.data() + row * shape_.d2;
      for (Index j = 0; j < shape_.d2; ++j)
        x[j] = graded_score(kind, sharp * x[j], row, j, shape_.d2, spike);
    }
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
  const Index kinds_;
  std::optional<SoftmaxMatmulInputs> x_;
  Tensor<float, 3> out_;
};

}  // namespace

std::unique_ptr<Problem> make_problem(const AttentionProblem& problem, bool with_backward,
                                      bool finite) {
  if (problem.dtype != DType::kFloat32)
    throw ArgumentError("dtype is " + to_string(problem.dtype) + "; on a CPU it must be float32");
  return std::make_unique<AttentionOnHost>(problem, with_backward, finite);
}

std::unique_ptr<Problem> make_problem(const SoftmaxMatmulShape& shape, bool finite) {
  return std::make_unique<SoftmaxMatmulOnHost>(shape, finite);
}

std::unique_ptr<grading::CallMemory> memory_of_calls() { return grading::memory_of_host(); }

// Of one core. Its peak: independent fused multiply-adds on registers, in the widest vectors that a
// student's file is compiled for.
Rates rates_now() {
  return {.peak_gflops = native_peak_gflops(DType::kFloat32, 1, 1),
          .bandwidth_gbs = read_bandwidth_gbs()};
}

}  // namespace flash::leaderboard
