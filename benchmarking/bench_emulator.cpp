// How long the emulator (common/simt) takes: not a benchmark of any kernel, but of what a student waits for. Linked once with the
// emulated and once with the checked build of its kernel. Prints medians; writes no CSV, since no time of the emulator is a result.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "benchmarking/emulated_attention.hpp"
#include "benchmarking/options.hpp"
#include "benchmarking/program.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "common/simt/simt.hpp"

namespace flash {
namespace {

constexpr Index kHeadDim = 64;

double median_ms(int turns, const std::function<void()>& run) {
  run();
  std::vector<double> times;
  for (int turn = 0; turn < turns; ++turn) {
    const auto start = std::chrono::steady_clock::now();
    run();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return quantile(times, 0.5);
}

// The largest difference from the float64 oracle.
double error_of(const Tensor<float, 3>& q, const Tensor<float, 3>& k, const Tensor<float, 3>& v, const Tensor<float, 3>& out) {
  const Index heads = q.extent(0), n = q.extent(1);
  Tensor<double, 3> scores({heads, n, n}), values({heads, n, kHeadDim});
  for (Index h = 0; h < heads; ++h)
    for (Index i = 0; i < n; ++i) {
      for (Index c = 0; c < kHeadDim; ++c) values(h, i, c) = static_cast<double>(v(h, i, c));
      for (Index j = 0; j < n; ++j)
        for (Index c = 0; c < kHeadDim; ++c) scores(h, i, j) += static_cast<double>(q(h, i, c)) * static_cast<double>(k(h, j, c)) / 8;
    }
  const TensorView<const double, 3> x = scores.view(), w = values.view();
  const Tensor<double, 3> want = softmax_matmul_oracle(x, w);
  double error = 0;
  for (Index i = 0; i < want.size(); ++i) error = std::max(error, std::fabs(static_cast<double>(out.data()[i]) - want.data()[i]));
  return error;
}

int run(int argc, char** argv) {
  std::optional<std::int64_t> heads = 4, sequence = 256, turns = 11;
  Options options("bench_emulator", "How long the emulator takes for a flash-attention kernel, head_dim 64. Says nothing about a GPU.");
  options.integer("heads", "N", "batch times heads; default 4", heads, 1, 1024);
  options.integer("sequence", "N", "queries and keys; default 256", sequence, 1, 1 << 16);
  options.integer("turns", "N", "timed launches; default 11", turns, 1, 1000000);
  if (!options.parse(argc, argv)) return 0;

  const Shape<3> shape{*heads, *sequence, kHeadDim};
  const auto q = make_input<3>(shape, Pattern::kNormal, 1), k = make_input<3>(shape, Pattern::kNormal, 2), v = make_input<3>(shape, Pattern::kNormal, 3);
  const DeviceTensor<float, 3> device_q(q), device_k(k), device_v(v), out(shape);
  const double ms = median_ms(static_cast<int>(*turns), [&] {
    emulated_attention(device_q.data(), device_k.data(), device_v.data(), out.data(), static_cast<int>(*heads), static_cast<int>(*sequence));
  });
  const double error = error_of(q, k, v, out.to_host());
  std::printf("%s: %lld heads, sequence %lld, head_dim 64: median %.4g ms of %lld launches; largest error %.2g\n",
              simt::checking() ? "checked" : "emulated", static_cast<long long>(*heads), static_cast<long long>(*sequence), ms,
              static_cast<long long>(*turns), error);
  return error < 1e-5 ? 0 : 1;
}

}  // namespace
}  // namespace flash

int main(int argc, char** argv) { return flash::run_program(argc, argv, flash::run); }
