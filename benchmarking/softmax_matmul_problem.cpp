// The inputs of one softmax-matmul, the functions on them, and the check. See softmax_matmul_problem.hpp.
#include "benchmarking/softmax_matmul_problem.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "benchmarking/screen.hpp"
#include "common/compare.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"
#if FLASH_HAVE_CUDA
#include "common/cuda/device_tensor.hpp"
#endif

namespace flash {
namespace {

// N(0, 1), each batch from a seed of its own: at full size X holds 2^28 numbers, 10 s for one thread.
Tensor<float, 3> normal_input(const Shape<3>& shape, std::uint64_t seed) {
  Tensor<float, 3> tensor(shape);
  const Index slice = shape[1] * shape[2];
  const Index workers = std::clamp<Index>(std::thread::hardware_concurrency(), 1, shape[0]);
  std::vector<std::jthread> threads;
  for (Index worker = 0; worker < workers; ++worker)
    threads.emplace_back([&, worker] {
      for (Index b = worker; b < shape[0]; b += workers)
        fill(tensor.data() + b * slice, shape[1], shape[2], Pattern::kNormal, seed + static_cast<std::uint64_t>(b));
    });
  threads.clear();  // joins
  return tensor;
}

Tensor<float, 3> make_x(const SoftmaxMatmulSizes& sizes, std::uint64_t seed) { return normal_input(sizes.x(), seed); }

// 2^32 away, so that no batch of v shares a seed with one of x.
Tensor<float, 3> make_v(const SoftmaxMatmulSizes& sizes, std::uint64_t seed) {
  return normal_input(sizes.v(), seed + (std::uint64_t{1} << 32));
}

// What N(0, 1) hardly exceeds. One key of d2 left out shifts a row by about 1 / d2: at 8192, five times the bound.
constexpr double kLargestScore = 6;

class CpuProblem final : public SoftmaxMatmulProblem {
 public:
  CpuProblem(const SoftmaxMatmulSizes& sizes, std::uint64_t seed)
      : x_(make_x(sizes, seed)), v_(make_v(sizes, seed)), out_(sizes.out()) {
    prepare_check(x_, v_, seed);
  }

  void unfused() override { softmax_matmul(const_x(), const_v(), out_.view()); }
  void fused(Index block) override { fused_softmax_matmul(const_x(), const_v(), out_.view(), block, block); }

 private:
  TensorView<const float, 3> const_x() const { return x_.view(); }
  TensorView<const float, 3> const_v() const { return v_.view(); }

  void write_output(Index batch, Index row, const float* values) override {
    std::copy_n(values, out_.extent(2), &out_(batch, row, 0));
  }
  void read_output(Index batch, Index row, float* values) const override {
    std::copy_n(&out_(batch, row, 0), out_.extent(2), values);
  }

  Tensor<float, 3> x_, v_, out_;
};

#if FLASH_HAVE_CUDA

class GpuProblem final : public SoftmaxMatmulProblem {
 public:
  // Device memory first: where it runs out, nobody waits for the numbers.
  GpuProblem(const SoftmaxMatmulSizes& sizes, std::uint64_t seed) : x_(sizes.x()), v_(sizes.v()), out_(sizes.out()) {
    const Tensor<float, 3> x = make_x(sizes, seed), v = make_v(sizes, seed);
    x_.copy_from(x);
    v_.copy_from(v);
    prepare_check(x, v, seed);
  }

  void unfused() override { softmax_matmul_cuda(x_.view(), v_.view(), out_.view()); }
  void fused(Index block) override { fused_softmax_matmul_cuda(x_.view(), v_.view(), out_.view(), block, block); }

 private:
  float* row_of(Index batch, Index row) const { return &out_.view()(batch, row, 0); }
  std::size_t row_bytes() const { return sizeof(float) * static_cast<std::size_t>(out_.shape()[2]); }

  void write_output(Index batch, Index row, const float* values) override {
    device::copy_to_device(row_of(batch, row), values, row_bytes());
  }
  void read_output(Index batch, Index row, float* values) const override {
    device::copy_to_host(values, row_of(batch, row), row_bytes());
  }

  DeviceTensor<float, 3> x_, v_, out_;
};

#endif

}  // namespace

void SoftmaxMatmulProblem::prepare_check(const Tensor<float, 3>& x, const Tensor<float, 3>& v, std::uint64_t seed) {
  const Index batch = x.extent(0), d1 = x.extent(1), d2 = x.extent(2), d3 = v.extent(2);
  // The first and last rows, where blocks and tails go wrong, and some in between.
  Random random(seed);
  for (const Index b : std::set<Index>{0, batch / 2, batch - 1}) {
    std::set<Index> rows{0, d1 / 2, d1 - 1};
    for (int i = 0; i < 5; ++i) rows.insert(random.below(d1));
    for (const Index row : rows) {
      const TensorView<const float, 3> x_row(&x(b, row, 0), {1, 1, d2}), v_batch(&v(b, 0, 0), {1, d2, d3});
      samples_.push_back({b, row, softmax_matmul_oracle(x_row, v_batch), softmax_matmul_magnitude(x_row, v_batch)});
    }
  }
  d2_ = d2;
}

void SoftmaxMatmulProblem::spoil_output() {
  for (const Sample& sample : samples_) {
    const std::vector<float> spoiled(static_cast<std::size_t>(sample.want.size()), poison());
    write_output(sample.batch, sample.row, spoiled.data());
  }
}

std::string SoftmaxMatmulProblem::check() const {
  std::string first;
  std::size_t wrong = 0;
  for (const Sample& sample : samples_) {
    Tensor<float, 1> got({sample.want.size()});
    read_output(sample.batch, sample.row, got.data());
    const double bound = softmax_matmul_bound(d2_, kLargestScore);
    const CompareOptions options{
        .max_scaled = bound,
        // The terms cancel: |out| falls like 1 / sqrt(d2).
        .max_frobenius = bound * std::sqrt(static_cast<double>(d2_)),
        .axes = {"column"},
        .blocks = {},
        .magnitude = sample.magnitude.data()};
    const Comparison comparison = compare(got.data(), sample.want.data(), {sample.want.size()}, options);
    if (comparison.pass) continue;
    if (wrong++ == 0)
      first = format("batch %lld, row %lld: ", static_cast<long long>(sample.batch), static_cast<long long>(sample.row)) +
              comparison.text;
  }
  if (wrong == 0) return "";
  for (std::size_t end; (end = first.find('\n')) != std::string::npos;) first.replace(end, 1, "; ");
  return format("%zu of %zu sampled rows; ", wrong, samples_.size()) + first;
}

std::unique_ptr<SoftmaxMatmulProblem> make_softmax_matmul_problem([[maybe_unused]] const std::string& device,
                                                                  const SoftmaxMatmulSizes& sizes, std::uint64_t seed) {
#if FLASH_HAVE_CUDA
  if (device == "cuda") return std::make_unique<GpuProblem>(sizes, seed);
#endif
  return std::make_unique<CpuProblem>(sizes, seed);
}

}  // namespace flash
