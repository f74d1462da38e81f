// The boards of a GPU: inputs, oracle and check are on the GPU too.
#include <cuda_runtime.h>

#include <cmath>

#include "benchmarking/leaderboard/gpu_oracle.hpp"
#include "benchmarking/leaderboard/problem.hpp"
#include "benchmarking/program.hpp"
#include "common/cuda/check.hpp"
#include "common/oracle.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash::leaderboard {
namespace {

grading::Call on_device(grading::Call call) {
  call.on_device = true;
  return call;
}

template <class T, int Rank>
TensorView<T, Rank> full_of_nan(DeviceTensor<T, Rank>& tensor) {
  device::fill_bytes(tensor.data(), 0xff, tensor.bytes());
  return tensor.view();
}

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

// A weight in float32 that is split into planes of half, as in both parts' ladders, loses up to
// 2^-31. It counts where the key with the weight has a v near 0.
double lost_in_planes(Index keys) { return 0x1p-31 * std::sqrt(static_cast<double>(keys)); }

template <class T>
class AttentionOnGpu final : public Problem {
 public:
  AttentionOnGpu(const AttentionProblem& problem, bool with_backward, bool finite)
      : options_(problem.options),
        kinds_(finite          ? kFiniteKinds
               : with_backward ? kKindsOfGradients
                               : kAllKinds),
        head_{1, 1, problem.shape.queries, problem.shape.keys, problem.shape.head_dim},
        oracle_(problem.shape.batch * problem.shape.heads, head_, options_.causal, with_backward),
        lse_(problem.shape.of_rows()),
        right_lse_(problem.shape.of_rows()) {
    const AttentionShape& shape = problem.shape;
    for (auto* tensor : {&q_, &out_, &right_out_, &d_out_, &d_q_})
      *tensor = DeviceTensor<T, 4>(shape.of_queries());
    for (auto* tensor : {&k_, &v_, &d_k_, &d_v_}) *tensor = DeviceTensor<T, 4>(shape.of_keys());
  }

  void draw(const Cipher& cipher, bool in_each_part) override {
    std::uint64_t stream = 0;
    for (auto* tensor : {&q_, &k_, &v_, &d_out_})
      fill_normal(tensor->data(), tensor->view().size(), cipher, stream++);
    const Shape<4>& shape = q_.shape();
    const Index batch = shape[0], heads = shape[1], queries = shape[2], head_dim = shape[3];
    sharpen(q_.data(), batch * heads * queries, head_dim, cipher);
    for (Index head = 0; head < batch * heads; ++head) {
      const Graded kind = kind_of(cipher, head, kinds_, in_each_part);
      T *const q = q_.data() + head * queries * head_dim, *const k = k_.data() +
                                                                     head * head_.keys * head_dim;
      grade_head(q, k, head_, kind, spike_of(cipher, head, head_.keys));
      // Or exp of a score overflows.
      if (kind == Graded::kPlain &&
          cipher.choice(static_cast<std::uint64_t>(batch * heads + head), 8) == 0)
        fill_normal(q, queries * head_dim, cipher, stream++, 40);
    }
    const auto without_weights = [&](auto* x, Index width, float value) {
      for (Index head = 0; head < batch * heads; ++head)
        if (kind_of(cipher, head, kinds_, in_each_part) == Graded::kNoWeights)
          fill_rows_without_weights(x + head * queries * width, queries, width, value);
    };
    without_weights(d_out_.data(), head_dim, 0);
    oracle_.compute(q_.data(), k_.data(), v_.data(), d_out_.data());
    round_to(right_out_.data(), oracle_.out.value.data(), right_out_.view().size());
    round_to(right_lse_.data(), oracle_.lse.value.data(), right_lse_.view().size());
    without_weights(right_out_.data(), head_dim, 0);
    without_weights(right_lse_.data(), 1, -INFINITY);
  }

  grading::Call call(std::size_t pass) override {
    if (pass == 0)
      return on_device(
          grading::call_of(grading::device_function<T>(grading::kFlashForwardCuda),
                           AttentionForward<T>{q_.view(), k_.view(), v_.view(), full_of_nan(out_),
                                               full_of_nan(lse_), options_},
                           {0, 0, 0, 0}));
    return on_device(
        grading::call_of(grading::device_function<T>(grading::kFlashBackwardCuda),
                         AttentionBackward<T>{q_.view(), k_.view(), v_.view(), right_out_.view(),
                                              right_lse_.view(), d_out_.view(), full_of_nan(d_q_),
                                              full_of_nan(d_k_), full_of_nan(d_v_), options_}));
  }

  std::string wrong(std::size_t pass) const override {
    // Each head has a bound of its own, which follows from its largest score.
    const auto bounds = [&](auto bound) {
      std::vector<double> of_heads;
      for (const double score : oracle_.largest_scores) of_heads.push_back(bound(head_, score));
      return of_heads;
    };
    const auto check = [&](const char* name, const char* rows, const DeviceTensor<T, 4>& got,
                           const Wanted& wanted, const std::vector<double>& bound) {
      return text_of(find_mistakes(got.data(), wanted, bound, lost()), name,
                     {"batch", "head", rows, "column"}, got.shape());
    };
    if (pass == 0) {
      const std::string text =
          check("out", "query", out_, oracle_.out, bounds(attention_output_bound<T>));
      if (!text.empty()) return text;
      const double u = unit_roundoff<float>();
      const auto of_lse = bounds([u](const AttentionShape& head, double score) {
        return attention_bound(head, score, u);
      });
      return text_of(find_mistakes(lse_.data(), oracle_.lse, of_lse, 0, u), "lse",
                     {"batch", "head", "query"}, lse_.shape());
    }
    const auto bound = bounds(attention_gradient_bound<T>);
    std::string text = check("d_v", "key", d_v_, oracle_.d_v, bound);
    if (text.empty()) text = check("d_q", "query", d_q_, oracle_.d_q, bound);
    if (text.empty()) text = check("d_k", "key", d_k_, oracle_.d_k, bound);
    return text;
  }

 private:
  // What small numbers lose, whatever the magnitude. Half, below 2^-14: up to 2^-25 of out and of
  // each weight in its sum. BFloat16: a weight below the smallest normal number, 2^-126, which a
  // gradient has times a number of q, up to 200 in a sharp head.
  double lost() const {
    if (std::is_same_v<T, float>) return lost_in_planes(head_.keys);
    return std::is_same_v<T, Half> ? 0x1p-25 * (1 + std::sqrt(static_cast<double>(head_.keys)))
                                   : 0x1p-126 * 1000;
  }

  const AttentionOptions options_;
  const Index kinds_;
  const AttentionShape head_;
  GpuOracle<T> oracle_;
  DeviceTensor<T, 4> q_, k_, v_, d_out_, right_out_, out_, d_q_, d_k_, d_v_;
  DeviceTensor<float, 3> lse_, right_lse_;
};

class SoftmaxMatmulOnGpu final : public Problem {
 public:
  SoftmaxMatmulOnGpu(const SoftmaxMatmulShape& shape, bool finite)
      : shape_(shape),
        kinds_(finite ? kFiniteKinds : kAllKinds),
        x_(shape.of_x()),
        v_(shape.of_v()),
        out_(shape.of_out()),
        wanted_(out_.view().size()) {}

  void draw(const Cipher& cipher, bool in_each_part) override {
    fill_normal(x_.data(), x_.view().size(), cipher, 0);
    fill_normal(v_.data(), v_.view().size(), cipher, 1);
    grade_scores(x_.data(), shape_, cipher, kinds_, in_each_part);
    largest_scores_ = softmax_matmul_wanted(x_.data(), v_.data(), shape_, wanted_);
  }
  grading::Call call(std::size_t) override {
    const SoftmaxMatmulBlocks blocks;
    return on_device(grading::call_of(grading::kFusedSoftmaxMatmulCuda,
                                      SoftmaxMatmul<float>{x_.view(), v_.view(), full_of_nan(out_)},
                                      {blocks.block_1, blocks.block_2}));
  }
  std::string wrong(std::size_t) const override {
    std::vector<double> bounds;  // of each row
    for (const double score : largest_scores_)
      bounds.push_back(softmax_matmul_bound(shape_.d2, score));
    return text_of(find_mistakes(out_.data(), wanted_, bounds, lost_in_planes(shape_.d2)), "out",
                   {"batch", "row", "column"}, out_.shape());
  }

 private:
  const SoftmaxMatmulShape shape_;
  const Index kinds_;
  DeviceTensor<float, 3> x_, v_, out_;
  Wanted wanted_;
  std::vector<double> largest_scores_;
};

#ifndef FLASH_SIMT
int attribute(cudaDeviceAttr which) {
  int value = 0;
  FLASH_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, 0));
  return value;
}

// Dense products of 16-bit numbers on the tensor cores of one multiprocessor: operations a clock.
// No result that passes the check takes fewer of them.
double operations_a_clock(int capability) {
  if (capability < 80) return 1024;                            // Volta, Turing
  if (capability < 90) return capability == 80 ? 2048 : 1024;  // A100; Ampere, Ada
  return capability < 100 ? 4096 : 8192;                       // Hopper; Blackwell at most
}
#endif

}  // namespace

std::unique_ptr<Problem> make_problem(const AttentionProblem& problem, bool with_backward,
                                      bool finite) {
  if (problem.dtype == DType::kFloat32)
    return std::make_unique<AttentionOnGpu<float>>(problem, with_backward, finite);
  if (problem.dtype == DType::kFloat16)
    return std::make_unique<AttentionOnGpu<Half>>(problem, with_backward, finite);
  return std::make_unique<AttentionOnGpu<BFloat16>>(problem, with_backward, finite);
}

std::unique_ptr<Problem> make_problem(const SoftmaxMatmulShape& shape, bool finite) {
  return std::make_unique<SoftmaxMatmulOnGpu>(shape, finite);
}

std::unique_ptr<grading::CallMemory> memory_of_calls() { return grading::memory_of_gpu(); }

// Not measured but by the data sheet's formulas: a floor that no program is under.
Rates rates_now() {
  Rates rates{.peak_gflops = 1e6, .bandwidth_gbs = 1e6};
#ifndef FLASH_SIMT
  rates.peak_gflops = 1e-6 * attribute(cudaDevAttrClockRate) * device::multiprocessors() *
                      operations_a_clock(device::compute_capability());
  rates.bandwidth_gbs =
      2e-6 / 8 * attribute(cudaDevAttrMemoryClockRate) * attribute(cudaDevAttrGlobalMemoryBusWidth);
#endif
  return rates;
}

}  // namespace flash::leaderboard
