// The problems of all boards: softmax(X) V, and attention, whose backward pass gets out and lse
// from the oracle, so that each pass is measured on its own. A Device is a struct of what is of the
// host or of a GPU: Memory, Oracle, and functions.
#pragma once

#include <cmath>

#include "benchmarking/leaderboard/problem.hpp"
#include "common/oracle.hpp"

namespace flash::leaderboard {

// "out of batch 0, head 3, query 17, column 5 is 1, expected 2 (4 of 9 elements are wrong)".
template <std::size_t Rank>
std::string text_of(const Mistakes& found, const std::string& name, const Strings& axes,
                    const std::array<Index, Rank>& shape) {
  if (found.count == 0) return "";
  std::string place;
  Index rest = found.first, all = 1;
  for (std::size_t axis = Rank; axis-- > 0; rest /= shape[axis], all *= shape[axis])
    place = (axis > 0 ? ", " : "") + axes[axis] + " " + std::to_string(rest % shape[axis]) + place;
  return name + " of " + place +
         (std::isnan(found.got) ? " is NaN, or was not written when the call ended"
                                : format(" is %.7g", found.got)) +
         format(", expected %.7g (%lld of %lld elements are wrong)", found.wanted,
                static_cast<long long>(found.count), static_cast<long long>(all));
}

template <class T, class Device>
class AttentionOn final : public Problem {
 public:
  AttentionOn(const AttentionProblem& problem, std::size_t count)
      : Problem(attention_passes(problem, count, sizeof(T))),
        options_(problem.options),
        head_{1, 1, problem.shape.queries, problem.shape.keys, problem.shape.head_dim},
        oracle_(problem.shape.batch * problem.shape.heads, head_, options_.causal, count > 1),
        lse_(problem.shape.of_rows()),
        lse_want_(problem.shape.of_rows()) {
    const AttentionShape& shape = problem.shape;
    for (auto* tensor : {&q_, &out_, &out_want_, &d_out_, &d_q_})
      *tensor = Memory<T, 4>(shape.of_queries());
    for (auto* tensor : {&k_, &v_, &d_k_, &d_v_}) *tensor = Memory<T, 4>(shape.of_keys());
  }

  void draw(std::uint64_t seed) override {
    std::uint64_t number = 4 * seed;
    for (auto* tensor : {&q_, &k_, &v_, &d_out_})
      Device::fill_normal(tensor->data(), tensor->view().size(), number++);
    Device::sharpen(q_, seed);
    oracle_.compute(q_.data(), k_.data(), v_.data(), d_out_.data());
    Device::round_to(out_want_.data(), oracle_.out.value.data(), out_want_.view().size());
    Device::round_to(lse_want_.data(), oracle_.lse.value.data(), lse_want_.view().size());
  }

  grading::Call call(std::size_t pass) override {
    if (pass == 0) {
      Device::fill_with_nan(out_);
      Device::fill_with_nan(lse_);
      return Device::call_of(
          AttentionForward<T>{q_.view(), k_.view(), v_.view(), out_.view(), lse_.view(), options_});
    }
    for (auto* tensor : {&d_q_, &d_k_, &d_v_}) Device::fill_with_nan(*tensor);
    return Device::call_of(AttentionBackward<T>{q_.view(), k_.view(), v_.view(), out_want_.view(),
                                                lse_want_.view(), d_out_.view(), d_q_.view(),
                                                d_k_.view(), d_v_.view(), options_});
  }

  std::string wrong(std::size_t pass) const override {
    // Each head has a bound of its own, which follows from its largest score.
    const auto bounds = [&](auto bound) {
      std::vector<double> of_heads;
      for (const double score : oracle_.largest_scores) of_heads.push_back(bound(score));
      return of_heads;
    };
    const double lost = Device::template lost<T>(head_.keys);
    const auto check = [&](const char* name, const char* rows, const Memory<T, 4>& got,
                           const auto& wanted, const std::vector<double>& bound) {
      return text_of(Device::find_mistakes(got.data(), wanted, bound, lost), name,
                     {"batch", "head", rows, "column"}, got.shape());
    };
    if (pass == 0) {
      const std::string text =
          check("out", "query", out_, oracle_.out,
                bounds([&](double score) { return attention_output_bound<T>(head_, score); }));
      if (!text.empty()) return text;
      const double u = unit_roundoff<float>();
      const auto of_lse = bounds([&](double score) { return attention_bound(head_, score, u); });
      return text_of(Device::find_mistakes(lse_.data(), oracle_.lse, of_lse, 0, u), "lse",
                     {"batch", "head", "query"}, lse_.shape());
    }
    const auto bound =
        bounds([&](double score) { return attention_gradient_bound<T>(head_, score); });
    std::string text = check("d_v", "key", d_v_, oracle_.d_v, bound);
    if (text.empty()) text = check("d_q", "query", d_q_, oracle_.d_q, bound);
    if (text.empty()) text = check("d_k", "key", d_k_, oracle_.d_k, bound);
    return text;
  }

 private:
  template <class U, int Rank>
  using Memory = typename Device::template Memory<U, Rank>;

  const AttentionOptions options_;
  const AttentionShape head_;
  typename Device::template Oracle<T> oracle_;
  Memory<T, 4> q_, k_, v_, d_out_, out_want_, out_, d_q_, d_k_, d_v_;
  Memory<float, 3> lse_, lse_want_;
};

template <class Device>
class SoftmaxMatmulOn final : public Problem {
 public:
  explicit SoftmaxMatmulOn(const SoftmaxMatmulShape& shape)
      : Problem(softmax_matmul_passes(shape)),
        shape_(shape),
        x_(shape.of_x()),
        v_(shape.of_v()),
        out_(shape.of_out()),
        want_(out_.view().size()) {}

  void draw(std::uint64_t seed) override {
    Device::fill_normal(x_.data(), x_.view().size(), 2 * seed);
    Device::fill_normal(v_.data(), v_.view().size(), 2 * seed + 1);
    largest_score_ = Device::softmax_matmul_wanted(x_.data(), v_.data(), shape_, want_);
  }

  grading::Call call(std::size_t) override {
    Device::fill_with_nan(out_);
    return Device::call_of(SoftmaxMatmul<float>{x_.view(), v_.view(), out_.view()});
  }

  std::string wrong(std::size_t) const override {
    const double bound = softmax_matmul_bound(shape_.d2, largest_score_);
    return text_of(Device::find_mistakes(out_.data(), want_, {bound}), "out",
                   {"batch", "row", "column"}, out_.shape());
  }

 private:
  const SoftmaxMatmulShape shape_;
  typename Device::template Memory<float, 3> x_, v_, out_;
  typename Device::Wanted want_;
  double largest_score_ = 0;
};

}  // namespace flash::leaderboard
