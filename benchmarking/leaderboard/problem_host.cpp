// The problems of a CPU's boards, in float32.
#include <atomic>
#include <thread>

#include "benchmarking/core.hpp"
#include "benchmarking/leaderboard/problem_on.hpp"
#include "common/error.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash::leaderboard {
namespace {

struct Wanted {
  Tensor<double, 1> value, magnitude;

  explicit Wanted(Index size) : value({size}), magnitude({size}) {}

  // The values of head n.
  void put(Index n, const WithMagnitude& head) {
    const Index size = head.value.size();
    std::copy_n(head.value.data(), size, value.data() + n * size);
    std::copy_n(head.magnitude.data(), size, magnitude.data() + n * size);
  }
};

// The oracle of common/oracle.hpp with the interface of gpu_oracle.hpp, on two cores.
template <class T>
class HostOracle {
 public:
  HostOracle(Index heads, const AttentionShape& head, bool causal, bool backward)
      : out(heads * head.queries * head.head_dim),
        d_q(heads * head.queries * head.head_dim),
        d_k(heads * head.keys * head.head_dim),
        d_v(heads * head.keys * head.head_dim),
        lse(heads * head.queries),
        largest_scores(static_cast<std::size_t>(heads)),
        heads_(heads),
        head_(head),
        options_{.causal = causal},
        backward_(backward) {
    std::fill_n(lse.magnitude.data(), lse.magnitude.size(), 1.0);
  }

  void compute(const T* q, const T* k, const T* v, const T* d_out) {
    std::atomic<Index> next{0};
    const auto work = [&] {
      for (Index n = next++; n < heads_; n = next++) compute_head(n, q, k, v, d_out);
    };
    std::jthread other(work);
    work();
  }

  Wanted out, d_q, d_k, d_v, lse;
  std::vector<double> largest_scores;

 private:
  void compute_head(Index n, const T* q, const T* k, const T* v, const T* d_out) {
    const auto of_head = [n](const T* all, const Shape<4>& shape) {
      return TensorView<const T, 4>(all + n * element_count(shape), shape);
    };
    const auto Q = of_head(q, head_.of_queries()), K = of_head(k, head_.of_keys()),
               V = of_head(v, head_.of_keys());
    const AttentionOracle forward = attention_oracle<T>(Q, K, V, options_);
    out.put(n, forward.out);
    std::copy_n(forward.lse.data(), head_.queries, lse.value.data() + n * head_.queries);
    largest_scores[static_cast<std::size_t>(n)] = forward.largest_score;
    if (!backward_) return;
    const AttentionOracleGradients gradients =
        attention_backward_oracle<T>(Q, K, V, of_head(d_out, head_.of_queries()), options_);
    d_q.put(n, gradients.d_q);
    d_k.put(n, gradients.d_k);
    d_v.put(n, gradients.d_v);
  }

  const Index heads_;
  const AttentionShape head_;
  const AttentionOptions options_;
  const bool backward_;
};

struct Host {
  template <class T, int Rank>
  using Memory = Tensor<T, Rank>;
  using Wanted = leaderboard::Wanted;
  template <class T>
  using Oracle = HostOracle<T>;

  static double softmax_matmul_wanted(const float* x_data, const float* v_data,
                                      const SoftmaxMatmulShape& shape, Wanted& out) {
    const TensorView<const float, 3> x(x_data, shape.of_x()), v(v_data, shape.of_v());
    const Tensor<double, 3> value = softmax_matmul_oracle<float>(x, v),
                            magnitude = softmax_matmul_magnitude<float>(x, v);
    std::copy_n(value.data(), value.size(), out.value.data());
    std::copy_n(magnitude.data(), value.size(), out.magnitude.data());
    float largest = 0;
    for (Index i = 0; i < x.size(); ++i) largest = std::max(largest, std::fabs(x_data[i]));
    return static_cast<double>(largest);
  }

  static void fill_normal(float* x, Index count, std::uint64_t seed) {
    Random random(seed);
    for (Index i = 0; i < count; ++i) x[i] = static_cast<float>(random.normal());
  }

  static void round_to(float* to, const double* from, Index count) {
    for (Index i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
  }

  template <class T>
  static Mistakes find_mistakes(const T* got, const Wanted& wanted,
                                const std::vector<double>& bounds, double absolute = 0,
                                double relative = 0) {
    Mistakes found;
    const Index count = wanted.value.size(), piece = count / static_cast<Index>(bounds.size());
    for (Index i = 0; i < count; ++i) {
      const double have = static_cast<double>(got[i]), want = wanted.value(i);
      const double bound = bounds[static_cast<std::size_t>(i / piece)];
      if (std::fabs(have - want) <=
          bound * wanted.magnitude(i) + absolute + relative * std::fabs(want))
        continue;
      if (found.count++ == 0) found.first = i, found.got = have, found.wanted = want;
    }
    return found;
  }

  static void sharpen(const Tensor<float, 4>&, std::uint64_t) {}

  template <class T>
  static double lost(Index) {
    return 0;
  }

  static grading::Call call_of(const AttentionForward<float>& pass) {
    const AttentionBlocks blocks;
    return grading::call_of(grading::kAttentionForward, pass, {blocks.queries, blocks.keys});
  }
  static grading::Call call_of(const AttentionBackward<float>& pass) {
    return grading::call_of(grading::kAttentionBackward, pass, {16});
  }
  static grading::Call call_of(const SoftmaxMatmul<float>& pass) {
    const SoftmaxMatmulBlocks blocks;
    return grading::call_of(grading::kFusedSoftmaxMatmul, pass, {blocks.block_1, blocks.block_2});
  }
  static void fill_with_nan(auto& tensor) { flash::fill_with_nan(tensor); }
};

}  // namespace

std::unique_ptr<Problem> make_problem(const AttentionProblem& problem, std::size_t passes) {
  if (problem.dtype != DType::kFloat32)
    throw ArgumentError("dtype is " + to_string(problem.dtype) + "; on a CPU it must be float32");
  return std::make_unique<AttentionOn<float, Host>>(problem, passes);
}

std::unique_ptr<Problem> make_problem(const SoftmaxMatmulShape& shape) {
  return std::make_unique<SoftmaxMatmulOn<Host>>(shape);
}

}  // namespace flash::leaderboard
