// The problems of a GPU's boards: inputs, oracle and check are on the GPU too. As on the host the
// backward pass gets out and lse from the oracle, so that each pass is measured on its own.
#include <cmath>
#include <numeric>

#include "benchmarking/leaderboard/gpu_oracle.hpp"
#include "benchmarking/leaderboard/problem.hpp"
#include "common/error.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash::leaderboard {
namespace {

// "out of batch 0, head 3, query 17, column 5 is 1, expected 2 (4 of 9 elements are wrong)".
std::string text_of(const Mistakes& found, const std::string& name, const Strings& axes,
                    const std::vector<Index>& shape) {
  if (found.count == 0) return "";
  std::string place;
  Index rest = found.first, all = 1;
  for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis], all *= shape[axis])
    place = (axis > 0 ? ", " : "") + axes[axis] + " " + std::to_string(rest % shape[axis]) + place;
  return name + " of " + place +
         (std::isnan(found.got) ? " is NaN, or was not written when the call ended"
                                : format(" is %.7g", found.got)) +
         format(", expected %.7g (%lld of %lld elements are wrong)", found.wanted,
                static_cast<long long>(found.count), static_cast<long long>(all));
}

template <class T, int Rank>
void fill_with_nan(DeviceTensor<T, Rank>& tensor) {
  device::fill_bytes(tensor.data(), 0xff, tensor.bytes());
}

grading::Call on_device(grading::Call call) {
  call.on_device = true;
  return call;
}

template <class T>
class GpuAttention final : public Problem {
 public:
  GpuAttention(const AttentionShape& shape, bool causal, std::size_t count)
      : Problem(attention_passes(shape, causal, count, sizeof(T))),
        shape_(shape),
        causal_(causal),
        oracle_(shape.batch * shape.heads, {1, 1, shape.queries, shape.keys, shape.head_dim},
                causal, count > 1) {
    for (auto* tensor : {&q_, &out_, &out_want_, &d_out_, &d_q_})
      *tensor = DeviceTensor<T, 4>(shape.of_queries());
    for (auto* tensor : {&k_, &v_, &d_k_, &d_v_}) *tensor = DeviceTensor<T, 4>(shape.of_keys());
    lse_ = DeviceTensor<float, 3>(shape.of_rows());
    lse_want_ = DeviceTensor<float, 3>(shape.of_rows());
  }

  void draw(std::uint64_t seed) override {
    std::uint64_t number = 4 * seed;
    for (auto* tensor : {&q_, &k_, &v_, &d_out_})
      fill_normal(tensor->data(), tensor->view().size(), number++);
    sharpen(seed);
    oracle_.compute(q_.data(), k_.data(), v_.data(), d_out_.data());
    round_to(out_want_.data(), oracle_.out().value.data(), out_want_.view().size());
    round_to(lse_want_.data(), oracle_.lse().value.data(), lse_want_.view().size());
  }

  grading::Call call(std::size_t pass) override {
    const AttentionOptions options{.causal = causal_};
    if (pass == 0) {
      fill_with_nan(out_);
      fill_with_nan(lse_);
      return on_device(grading::call_of(
          grading::device_function<T>(grading::kFlashForwardCuda),
          AttentionForward<T>{q_.view(), k_.view(), v_.view(), out_.view(), lse_.view(), options},
          {0, 0, 0, 0}));
    }
    fill_with_nan(d_q_);
    fill_with_nan(d_k_);
    fill_with_nan(d_v_);
    return on_device(grading::call_of(
        grading::device_function<T>(grading::kFlashBackwardCuda),
        AttentionBackward<T>{q_.view(), k_.view(), v_.view(), out_want_.view(), lse_want_.view(),
                             d_out_.view(), d_q_.view(), d_k_.view(), d_v_.view(), options}));
  }

  std::string wrong(std::size_t pass) const override {
    const AttentionShape& head = oracle_.head();
    // Each head has a bound of its own, which follows from its largest score.
    const auto bounds = [&](auto bound) {
      std::vector<double> of_heads;
      for (const double score : oracle_.largest_scores()) of_heads.push_back(bound(score));
      return of_heads;
    };
    // What numbers of 16 bits lose below 2^-14, whatever the magnitude. Half: up to 2^-25 of out
    // and of each weight in its sum. float32: up to 2^-31 of a weight that is split into planes of
    // half, as in step 11 of the ladder; it counts where the key with the weight has a v near 0.
    const double keys = static_cast<double>(shape_.keys);
    const double lost = std::is_same_v<T, Half>    ? 0x1p-25 * (1 + std::sqrt(keys))
                        : std::is_same_v<T, float> ? 0x1p-31 * std::sqrt(keys)
                                                   : 0;
    const auto check = [&](const char* name, const char* rows, const DeviceTensor<T, 4>& got,
                           const Wanted& wanted, const std::vector<double>& bound) {
      const Shape<4>& shape = got.shape();
      return text_of(find_mistakes<T>(got.data(), wanted, bound, lost), name,
                     {"batch", "head", rows, "column"}, {shape.begin(), shape.end()});
    };
    if (pass == 0) {
      const auto of_out =
          bounds([&](double score) { return attention_output_bound<T>(head, score); });
      const std::string text = check("out", "query", out_, oracle_.out(), of_out);
      if (!text.empty()) return text;
      const double u = unit_roundoff<float>();
      const auto of_lse = bounds([&](double score) { return attention_bound(head, score, u); });
      const Shape<3>& shape = lse_.shape();
      return text_of(find_mistakes<float>(lse_.data(), oracle_.lse(), of_lse, 0, u), "lse",
                     {"batch", "head", "query"}, {shape.begin(), shape.end()});
    }
    const auto bound =
        bounds([&](double score) { return attention_gradient_bound<T>(head, score); });
    std::string text = check("d_v", "key", d_v_, oracle_.d_v(), bound);
    if (text.empty()) text = check("d_q", "query", d_q_, oracle_.d_q(), bound);
    if (text.empty()) text = check("d_k", "key", d_k_, oracle_.d_k(), bound);
    return text;
  }

 private:
  // In a quarter of the heads, and nobody knows in which before, Q is 8 times as large: there few
  // keys have all the weight. With many keys of about the same weight errors cancel, and products
  // of numbers of 8 bits would pass: their errors are then 0.3 of the bound for 16384 keys, and 100
  // times the bound in a sharp head.
  void sharpen(std::uint64_t seed) {
    const Index heads = shape_.batch * shape_.heads, size = shape_.queries * shape_.head_dim;
    Random random(seed);
    std::vector<Index> order(static_cast<std::size_t>(heads));
    std::iota(order.begin(), order.end(), Index{0});
    for (Index n = 0; n < (heads + 3) / 4; ++n) {
      std::swap(order[n], order[n + random.below(heads - n)]);
      scale(q_.data() + order[n] * size, size, 8);
    }
  }

  const AttentionShape shape_;
  const bool causal_;
  GpuOracle<T> oracle_;
  DeviceTensor<T, 4> q_, k_, v_, d_out_, out_want_, out_, d_q_, d_k_, d_v_;
  DeviceTensor<float, 3> lse_want_, lse_;
};

class GpuSoftmaxMatmul final : public Problem {
 public:
  explicit GpuSoftmaxMatmul(const Shape<4>& sizes)
      : Problem(softmax_matmul_passes({sizes[0], sizes[1], sizes[2], sizes[3]})),
        shape_{sizes[0], sizes[1], sizes[2], sizes[3]},
        sizes_(sizes),
        x_(shape_.of_x()),
        v_(shape_.of_v()),
        out_(shape_.of_out()),
        want_(out_.view().size()) {}

  void draw(std::uint64_t seed) override {
    fill_normal(x_.data(), x_.view().size(), 2 * seed);
    fill_normal(v_.data(), v_.view().size(), 2 * seed + 1);
    largest_score_ = softmax_matmul_on_gpu(x_.data(), v_.data(), sizes_, want_);
  }

  grading::Call call(std::size_t) override {
    fill_with_nan(out_);
    const SoftmaxMatmulBlocks blocks;
    return on_device(grading::call_of(grading::kFusedSoftmaxMatmulCuda,
                                      SoftmaxMatmul<float>{x_.view(), v_.view(), out_.view()},
                                      {blocks.block_1, blocks.block_2}));
  }

  std::string wrong(std::size_t) const override {
    const Shape<3>& shape = out_.shape();
    const double bound = softmax_matmul_bound(shape_.d2, largest_score_);
    return text_of(find_mistakes<float>(out_.data(), want_, {bound}), "out",
                   {"batch", "row", "column"}, {shape.begin(), shape.end()});
  }

 private:
  const SoftmaxMatmulShape shape_;
  const Shape<4> sizes_;
  DeviceTensor<float, 3> x_, v_, out_;
  Wanted want_;
  double largest_score_ = 0;
};

}  // namespace

std::unique_ptr<Problem> make_problem(const Asked& asked, const Shape<4>& sizes, bool causal) {
  if (asked.kind == "softmax_matmul") return std::make_unique<GpuSoftmaxMatmul>(sizes);
  const AttentionShape shape{sizes[0], sizes[1], sizes[2], sizes[2], sizes[3]};
  if (asked.dtype == "float32")
    return std::make_unique<GpuAttention<float>>(shape, causal, asked.passes);
  if (asked.dtype == "float16")
    return std::make_unique<GpuAttention<Half>>(shape, causal, asked.passes);
  return std::make_unique<GpuAttention<BFloat16>>(shape, causal, asked.passes);
}

}  // namespace flash::leaderboard
