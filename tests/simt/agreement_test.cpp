// The emulator's outputs of part 1's CUDA solutions are a GPU's, within the error bound of float32: the difference of the two, not
// of each from the oracle. FLASH_OUTPUTS_GPU and its like are programs (agreement_outputs.cpp).
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "common/compare.hpp"
#include "common/oracle.hpp"
#include "harness/catch.hpp"
#include "simt/agreement.hpp"

using namespace flash;

namespace {

// All outputs that `program` writes; nothing where it needs a GPU and there is none.
std::vector<float> outputs_of(const std::string& program) {
  const std::filesystem::path file = std::filesystem::path(program + ".outputs");
  std::filesystem::remove(file);
  const int status = std::system(("'" + program + "' '" + file.string() + "'").c_str());
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == agreement::kNoGpu) return {};
  REQUIRE(WEXITSTATUS(status) == 0);
  std::vector<float> outputs(std::filesystem::file_size(file) / sizeof(float));
  std::ifstream stream(file, std::ios::binary);
  stream.read(reinterpret_cast<char*>(outputs.data()), static_cast<std::streamsize>(outputs.size() * sizeof(float)));
  REQUIRE(stream);
  std::filesystem::remove(file);
  return outputs;
}

// One problem's outputs of both, shape (batch, rows, columns); `scores` (batch, rows, keys) and `v` (batch, keys, columns) are what
// they are the softmax-matmul of. Returns the share of the bound that the largest difference is.
double check_difference(const float* gpu, const float* emulated, const Shape<3>& shape, TensorView<const double, 3> scores,
                        TensorView<const double, 3> v, double bound) {
  Tensor<double, 3> want(shape);
  std::copy(gpu, gpu + want.size(), want.data());
  const Tensor<double, 3> magnitude = softmax_matmul_magnitude(scores, v);
  CompareOptions options;
  options.max_scaled = bound;
  options.max_frobenius = bound * std::sqrt(static_cast<double>(scores.extent(2)));
  options.axes = {"batch", "row", "column"};
  options.blocks = {0, 0, 0};
  options.magnitude = magnitude.data();
  const Comparison comparison = compare(emulated, want.data(), {shape.begin(), shape.end()}, options);
  CAPTURE(comparison.text);
  CHECK(comparison.pass);
  return comparison.scaled_max / bound;
}

template <int Rank>
Tensor<double, 3> as_doubles(const Tensor<float, Rank>& tensor, const Shape<3>& shape) {
  Tensor<double, 3> doubles(shape);
  std::copy(tensor.data(), tensor.data() + tensor.size(), doubles.data());
  return doubles;
}

}  // namespace

TEST_CASE("the emulator's outputs are the GPU's within float32's bound") {
  const std::vector<float> gpu = outputs_of(FLASH_OUTPUTS_GPU);
  if (gpu.empty()) {
    std::cout << "verdict:needs-gpu" << std::endl;
    return;
  }
  for (const char* const program : {FLASH_OUTPUTS_EMULATED, FLASH_OUTPUTS_CHECKED}) {
    const std::vector<float> emulated = outputs_of(program);
    REQUIRE(emulated.size() == gpu.size());
    std::size_t at = 0;
    double largest = 0;
    for (const auto& p : agreement::fused_problems()) {
      const Tensor<float, 3> x = p.x();
      double score = 0;
      for (Index i = 0; i < x.size(); ++i) score = std::max(score, std::fabs(static_cast<double>(x.data()[i])));
      const Tensor<double, 3> scores = as_doubles(x, x.shape()), v = as_doubles(p.v(), p.v().shape());
      CAPTURE(program, p.d1, p.d2, p.d3);
      largest = std::max(largest, check_difference(&gpu[at], &emulated[at], {p.batch, p.d1, p.d3}, scores.view(), v.view(),
                                                   softmax_matmul_bound(p.d2, score)));
      at += static_cast<std::size_t>(p.batch * p.d1 * p.d3);
    }
    for (const auto& p : agreement::attention_1d_problems()) {
      const Tensor<float, 1> q = p.q(), k = p.k();
      Tensor<double, 3> scores({1, p.n, p.n});
      double score = 0;
      for (Index i = 0; i < p.n; ++i)
        for (Index j = 0; j < p.n; ++j) {
          scores(0, i, j) = static_cast<double>(q(i)) * static_cast<double>(k(j));
          score = std::max(score, std::fabs(scores(0, i, j)));
        }
      CAPTURE(program, p.n);
      // The score is rounded as well, as often as it is a product: with k, with log2(e).
      largest = std::max(largest, check_difference(&gpu[at], &emulated[at], {1, p.n, 1}, scores.view(), as_doubles(p.v(), {1, p.n, 1}).view(),
                                                   softmax_matmul_bound(p.n, 2 * score)));
      at += static_cast<std::size_t>(p.n);
    }
    CHECK(at == gpu.size());
    std::cout << program << ": the largest difference from the GPU is " << largest << " of the bound\n";
  }
}
