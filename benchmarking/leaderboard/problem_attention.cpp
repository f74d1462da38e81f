// Part 2's problem on a CPU: attention in float32, forward and backward. The backward pass gets out
// and lse from the oracle, so that each pass is measured on its own.
#include <atomic>
#include <cmath>
#include <thread>

#include "benchmarking/core.hpp"
#include "benchmarking/leaderboard/host.hpp"
#include "common/compare.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash::leaderboard {
namespace {

// One head of (batch, heads, rows, columns).
TensorView<const float, 4> head_of(const Tensor<float, 4>& x, Index b, Index h) {
  return {&x(b, h, 0, 0), {1, 1, x.extent(2), x.extent(3)}, x.view().strides()};
}

Tensor<float, 4> nothing(const Shape<4>& shape) {
  Tensor<float, 4> tensor(shape);
  fill_with_nan(tensor);
  return tensor;
}

// What is wrong with one head of a result.
std::string wrong_head(const char* name, const char* rows, const Tensor<float, 4>& got, Index b,
                       Index h, const WithMagnitude& want, double bound) {
  const std::string where =
      name + format(" of batch %d, head %d: ", static_cast<int>(b), static_cast<int>(h));
  return verdict_of(compare(&got(b, h, 0, 0), want.value.data(),
                            {want.value.extent(2), want.value.extent(3)},
                            {.max_scaled = bound,
                             .max_frobenius = frobenius_bound(bound, want.value, want.magnitude),
                             .axes = {rows, "column"},
                             .blocks = {},
                             .magnitude = want.magnitude.data()}),
                    where)
      .wrong;
}

class AttentionProblem final : public Problem {
 public:
  AttentionProblem(const AttentionShape& shape, bool causal) : shape_(shape), causal_(causal) {}

  Strings passes() const override { return {"forward", "backward"}; }

  double flops(std::size_t pass) const override { return attention_flops(shape_, causal_, pass); }
  double bytes(std::size_t pass) const override {
    return attention_bytes(shape_, pass, sizeof(float));
  }

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
    using grading::argument;
    const auto input = [](const char* name, const auto& tensor) {
      return argument(name, tensor.view());
    };
    const std::vector<double> options = {causal_ ? 1.0 : 0.0, 0.0, 0.0};
    const AttentionBlocks blocks;
    if (pass == 0) {
      out_ = nothing(shape_.of_queries());
      lse_ = Tensor<float, 3>(shape_.of_rows());
      fill_with_nan(lse_);
      return {.function = grading::kAttentionForward,
              .arguments = {input("q", std::as_const(q_)), input("k", std::as_const(k_)),
                            input("v", std::as_const(v_)), argument("out", out_.view()),
                            argument("lse", lse_.view())},
              .integers = {blocks.queries, blocks.keys},
              .numbers = options};
    }
    d_q_ = nothing(shape_.of_queries());
    d_k_ = nothing(shape_.of_keys());
    d_v_ = nothing(shape_.of_keys());
    return {.function = grading::kAttentionBackward,
            .arguments = {input("q", std::as_const(q_)), input("k", std::as_const(k_)),
                          input("v", std::as_const(v_)), input("out", std::as_const(out_want_)),
                          input("lse", std::as_const(lse_want_)),
                          input("d_out", std::as_const(d_out_)), argument("d_q", d_q_.view()),
                          argument("d_k", d_k_.view()), argument("d_v", d_v_.view())},
            .integers = {16},
            .numbers = options};
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

std::unique_ptr<Problem> attention_on_host(const Shape<4>& sizes, bool causal) {
  return std::make_unique<AttentionProblem>(
      AttentionShape{sizes[0], sizes[1], sizes[2], sizes[2], sizes[3]}, causal);
}

}  // namespace flash::leaderboard
