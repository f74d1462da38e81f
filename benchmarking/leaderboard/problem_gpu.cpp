// The problems of a GPU's boards: inputs, oracle and check are on the GPU too.
#include <cmath>
#include <numeric>

#include "benchmarking/leaderboard/gpu_oracle.hpp"
#include "benchmarking/leaderboard/problem_on.hpp"
#include "common/inputs.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash::leaderboard {
namespace {

grading::Call on_device(grading::Call call) {
  call.on_device = true;
  return call;
}

struct Gpu {
  template <class T, int Rank>
  using Memory = DeviceTensor<T, Rank>;
  using Wanted = leaderboard::Wanted;
  template <class T>
  using Oracle = GpuOracle<T>;

  static double softmax_matmul_wanted(const float* x, const float* v,
                                      const SoftmaxMatmulShape& shape, Wanted& out) {
    return leaderboard::softmax_matmul_wanted(x, v, shape, out);
  }
  static void fill_normal(auto* x, Index count, std::uint64_t seed) {
    leaderboard::fill_normal(x, count, seed);
  }
  static void round_to(auto* to, const double* from, Index count) {
    leaderboard::round_to(to, from, count);
  }
  template <class T>
  static Mistakes find_mistakes(const T* got, const Wanted& wanted,
                                const std::vector<double>& bounds, double absolute = 0,
                                double relative = 0) {
    return leaderboard::find_mistakes(got, wanted, bounds, absolute, relative);
  }
  static void fill_with_nan(auto& tensor) {
    device::fill_bytes(tensor.data(), 0xff, tensor.bytes());
  }

  // In a quarter of the heads, and nobody knows in which before, Q is 8 times as large: there few
  // keys have all the weight. With many keys of about the same weight errors cancel, and products
  // of numbers of 8 bits would pass: their errors are then 0.3 of the bound for 16384 keys, and 100
  // times the bound in a sharp head.
  template <class T>
  static void sharpen(DeviceTensor<T, 4>& q, std::uint64_t seed) {
    const auto& [batch, heads_of_each, queries, head_dim] = q.shape();
    const Index heads = batch * heads_of_each, size = queries * head_dim;
    Random random(seed);
    std::vector<Index> order(static_cast<std::size_t>(heads));
    std::iota(order.begin(), order.end(), Index{0});
    for (Index n = 0; n < (heads + 3) / 4; ++n) {
      std::swap(order[n], order[n + random.below(heads - n)]);
      leaderboard::fill_normal(q.data() + order[n] * size, size, random.bits(), 8);
    }
  }

  // What numbers of 16 bits lose below 2^-14, whatever the magnitude. Half: up to 2^-25 of out
  // and of each weight in its sum. float32: up to 2^-31 of a weight that is split into planes of
  // half, as in rung 11 of the ladder; it counts where the key with the weight has a v near 0.
  template <class T>
  static double lost(Index keys) {
    const double sum = std::sqrt(static_cast<double>(keys));
    return std::is_same_v<T, Half>    ? 0x1p-25 * (1 + sum)
           : std::is_same_v<T, float> ? 0x1p-31 * sum
                                      : 0;
  }

  template <class T>
  static grading::Call call_of(const AttentionForward<T>& pass) {
    return on_device(grading::call_of(grading::device_function<T>(grading::kFlashForwardCuda), pass,
                                      {0, 0, 0, 0}));
  }
  template <class T>
  static grading::Call call_of(const AttentionBackward<T>& pass) {
    return on_device(
        grading::call_of(grading::device_function<T>(grading::kFlashBackwardCuda), pass));
  }
  static grading::Call call_of(const SoftmaxMatmul<float>& pass) {
    const SoftmaxMatmulBlocks blocks;
    return on_device(
        grading::call_of(grading::kFusedSoftmaxMatmulCuda, pass, {blocks.block_1, blocks.block_2}));
  }
};

}  // namespace

std::unique_ptr<Problem> make_problem(const AttentionProblem& problem, std::size_t passes) {
  if (problem.dtype == DType::kFloat32)
    return std::make_unique<AttentionOn<float, Gpu>>(problem, passes);
  if (problem.dtype == DType::kFloat16)
    return std::make_unique<AttentionOn<Half, Gpu>>(problem, passes);
  return std::make_unique<AttentionOn<BFloat16, Gpu>>(problem, passes);
}

std::unique_ptr<Problem> make_problem(const SoftmaxMatmulShape& shape) {
  return std::make_unique<SoftmaxMatmulOn<Gpu>>(shape);
}

}  // namespace flash::leaderboard
