// The problems of a CPU's boards, in float32: softmax(X) V, and attention, whose backward pass gets
// out and lse from the oracle, so that each pass is measured on its own.
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "benchmarking/core.hpp"
#include "benchmarking/leaderboard/problem.hpp"
#include "common/compare.hpp"
#include "common/error.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash::leaderboard {
namespace {

template <int Rank>
Tensor<float, Rank> nothing(const Shape<Rank>& shape) {
  Tensor<float, Rank> tensor(shape);
  fill_with_nan(tensor);
  return tensor;
}

// One head of (batch, heads, rows, columns).
TensorView<const float, 4> head_of(const Tensor<float, 4>& x, Index b, Index h) {
  return {&x(b, h, 0, 0), {1, 1, x.extent(2), x.extent(3)}, x.view().strides()};
}

// What is wrong with a result, whose elements have a bound each.
template <int Rank>
std::string wrong_result(const std::string& where, const float* got,
                         const Tensor<double, Rank>& want, const Tensor<double, Rank>& magnitude,
                         double bound, const Strings& axes) {
  const Shape<Rank>& shape = want.shape();  // without extents before those that have a name
  return verdict_of(compare(got, want.data(), {shape.end() - axes.size(), shape.end()},
                            {.max_scaled = bound,
                             .max_frobenius = std::numeric_limits<double>::max(),
                             .axes = axes,
                             .blocks = {},
                             .magnitude = magnitude.data()}),
                    where)
      .wrong;
}

std::string wrong_head(const char* name, const char* rows, const Tensor<float, 4>& got, Index b,
                       Index h, const WithMagnitude& want, double bound) {
  const std::string where =
      name + format(" of batch %d, head %d: ", static_cast<int>(b), static_cast<int>(h));
  return wrong_result(where, &got(b, h, 0, 0), want.value, want.magnitude, bound, {rows, "column"});
}

class HostSoftmaxMatmul final : public Problem {
 public:
  explicit HostSoftmaxMatmul(const SoftmaxMatmulShape& shape)
      : Problem(softmax_matmul_passes(shape)), shape_(shape) {}

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
    out_ = nothing<3>(shape_.of_out());
    const SoftmaxMatmulBlocks blocks;
    return grading::call_of(grading::kFusedSoftmaxMatmul,
                            SoftmaxMatmul<float>{x_.view(), v_.view(), out_.view()},
                            {blocks.block_1, blocks.block_2});
  }

  std::string wrong(std::size_t) const override {
    const double bound = softmax_matmul_bound(shape_.d2, largest_score_);
    return wrong_result("out: ", out_.data(), want_, magnitude_, bound, {"batch", "row", "column"});
  }

 private:
  const SoftmaxMatmulShape shape_;
  Tensor<float, 3> x_, v_, out_;
  Tensor<double, 3> want_, magnitude_;
  double largest_score_ = 0;
};

class HostAttention final : public Problem {
 public:
  HostAttention(const AttentionShape& shape, bool causal, std::size_t count)
      : Problem(attention_passes(shape, causal, count, sizeof(float))),
        shape_(shape),
        causal_(causal) {}

  void draw(std::uint64_t seed) override {
    q_ = normal<float>(shape_.of_queries(), 4 * seed);
    k_ = normal<float>(shape_.of_keys(), 4 * seed + 1);
    v_ = normal<float>(shape_.of_keys(), 4 * seed + 2);
    d_out_ = normal<float>(shape_.of_queries(), 4 * seed + 3);
    out_want_ = Tensor<float, 4>(shape_.of_queries());
    lse_want_ = Tensor<float, 3>(shape_.of_rows());
    const Index heads = shape_.batch * shape_.heads;
    forward_.assign(static_cast<std::size_t>(heads), {});
    backward_.assign(static_cast<std::size_t>(heads), {});
    std::atomic<Index> next{0};
    const auto work = [&] {
      for (Index n = next++; n < heads; n = next++) draw_head(n);
    };
    std::jthread other(work);
    work();
  }

  grading::Call call(std::size_t pass) override {
    const AttentionOptions options{.causal = causal_};
    if (pass == 0) {
      out_ = nothing<4>(shape_.of_queries());
      lse_ = nothing<3>(shape_.of_rows());
      const AttentionBlocks blocks;
      return grading::call_of(grading::kAttentionForward,
                              AttentionForward<float>{q_.view(), k_.view(), v_.view(), out_.view(),
                                                      lse_.view(), options},
                              {blocks.queries, blocks.keys});
    }
    d_q_ = nothing<4>(shape_.of_queries());
    d_k_ = nothing<4>(shape_.of_keys());
    d_v_ = nothing<4>(shape_.of_keys());
    return grading::call_of(grading::kAttentionBackward,
                            AttentionBackward<float>{
                                q_.view(), k_.view(), v_.view(), out_want_.view(), lse_want_.view(),
                                d_out_.view(), d_q_.view(), d_k_.view(), d_v_.view(), options},
                            {16});
  }

  std::string wrong(std::size_t pass) const override {
    for (Index n = 0; n < shape_.batch * shape_.heads; ++n) {
      const Index b = n / shape_.heads, h = n % shape_.heads;
      const auto& forward = forward_[static_cast<std::size_t>(n)];
      const auto& backward = backward_[static_cast<std::size_t>(n)];
      const double score = forward.largest_score;
      std::string text;
      if (pass == 0) {
        const double bound = attention_output_bound<float>(shape_, score);
        text = wrong_head("out", "query", out_, b, h, forward.out, bound);
        if (text.empty()) text = wrong_lse(b, h, forward.lse, bound);
      } else {
        const double bound = attention_gradient_bound<float>(shape_, score);
        text = wrong_head("d_v", "key", d_v_, b, h, backward.d_v, bound);
        if (text.empty()) text = wrong_head("d_q", "query", d_q_, b, h, backward.d_q, bound);
        if (text.empty()) text = wrong_head("d_k", "key", d_k_, b, h, backward.d_k, bound);
      }
      if (!text.empty()) return text;
    }
    return "";
  }

 private:
  void draw_head(Index n) {
    const Index b = n / shape_.heads, h = n % shape_.heads;
    const auto q = head_of(q_, b, h), k = head_of(k_, b, h), v = head_of(v_, b, h);
    const AttentionOptions options{.causal = causal_};
    auto& forward = forward_[static_cast<std::size_t>(n)];
    forward = attention_oracle(q, k, v, options);
    backward_[static_cast<std::size_t>(n)] =
        attention_backward_oracle(q, k, v, head_of(d_out_, b, h), options);
    for (Index i = 0; i < shape_.queries; ++i) {
      lse_want_(b, h, i) = static_cast<float>(forward.lse(0, 0, i));
      for (Index c = 0; c < shape_.head_dim; ++c)
        out_want_(b, h, i, c) = static_cast<float>(forward.out.value(0, 0, i, c));
    }
  }

  // An error of lse is that of the scores, beside 1, and what float32 loses of its own size.
  std::string wrong_lse(Index b, Index h, const Tensor<double, 3>& want, double bound) const {
    for (Index i = 0; i < shape_.queries; ++i) {
      const double expected = want(0, 0, i), got = static_cast<double>(lse_(b, h, i));
      if (std::fabs(got - expected) <= bound + std::fabs(expected) * unit_roundoff<float>())
        continue;
      return format("lse of batch %d, head %d, query %d is %g, expected %g", static_cast<int>(b),
                    static_cast<int>(h), static_cast<int>(i), got, expected);
    }
    return "";
  }

  const AttentionShape shape_;
  const bool causal_;
  Tensor<float, 4> q_, k_, v_, d_out_, out_want_, out_, d_q_, d_k_, d_v_;
  Tensor<float, 3> lse_want_, lse_;
  std::vector<AttentionOracle> forward_;  // of each head
  std::vector<AttentionOracleGradients> backward_;
};

}  // namespace

std::unique_ptr<Problem> make_problem(const Asked& asked, const Shape<4>& sizes, bool causal) {
  const auto [a, b, c, d] = sizes;
  if (asked.dtype != "float32")
    throw ArgumentError("dtype is " + asked.dtype + "; on a CPU it must be float32");
  if (asked.kind == "attention")
    return std::make_unique<HostAttention>(AttentionShape{a, b, c, c, d}, causal, asked.passes);
  return std::make_unique<HostSoftmaxMatmul>(SoftmaxMatmulShape{a, b, c, d});
}

}  // namespace flash::leaderboard
