// Every way to multiply matrices in a warp (matrix_kernels.cu), on the GPU and on the emulator. Products of small integers are exact
// in float32 whatever the order of the sums: there, each bit counts.
#include <cmath>

#include "common/inputs.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"
#include "simt/matrix_kernels.hpp"

using namespace flash;
using harness::skipped_without_gpu;
using matrix_kernels::Way;

namespace {

// Small integers, different in each place.
Tensor<float, 2> integers(Index rows, Index columns, int salt) {
  Tensor<float, 2> t({rows, columns});
  for (Index i = 0; i < t.size(); ++i) t.data()[i] = static_cast<float>((i * 37 + salt * 11) % 23 - 11);
  return t;
}

// `x` with as many bits of fraction as the type has, so that converting it changes nothing.
Tensor<float, 2> rounded(Tensor<float, 2> t, int fraction_bits) {
  for (Index i = 0; i < t.size(); ++i) {
    int exponent = 0;
    const double fraction = std::frexp(static_cast<double>(t.data()[i]), &exponent);
    t.data()[i] = static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(fraction, fraction_bits + 1)), exponent - fraction_bits - 1));
  }
  return t;
}

}  // namespace

TEST_CASE("products of integers are exact, element by element") {
  if (skipped_without_gpu()) return;
  for (const Way& way : matrix_kernels::ways()) {
    const auto a = integers(way.m, way.k, 1), b = integers(way.k, way.n, 2), c = integers(way.m, way.n, 3);
    const auto d = way.run(a, b, c);
    for (Index i = 0; i < way.m; ++i)
      for (Index j = 0; j < way.n; ++j) {
        float want = c(i, j);
        for (Index k = 0; k < way.k; ++k) want += a(i, k) * b(k, j);
        CAPTURE(way.name, i, j);
        REQUIRE(d(i, j) == want);
      }
  }
}

TEST_CASE("products of random numbers are as exact as float32 sums are") {
  if (skipped_without_gpu()) return;
  for (const Way& way : matrix_kernels::ways())
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const auto a = rounded(make_input<2>({way.m, way.k}, Pattern::kNormal, 3 * seed), way.fraction_bits),
                 b = rounded(make_input<2>({way.k, way.n}, Pattern::kNormal, 3 * seed + 1), way.fraction_bits),
                 c = make_input<2>({way.m, way.n}, Pattern::kNormal, 3 * seed + 2);
      const auto d = way.run(a, b, c);
      for (Index i = 0; i < way.m; ++i)
        for (Index j = 0; j < way.n; ++j) {
          double want = static_cast<double>(c(i, j)), magnitude = std::fabs(want);
          for (Index k = 0; k < way.k; ++k) {
            const double term = static_cast<double>(a(i, k)) * static_cast<double>(b(k, j));
            want += term;
            magnitude += std::fabs(term);
          }
          // Tensor cores cut off what a sum of 16 aligned terms drops below 2^-24 of the largest: 2 u a term, and u for c.
          CAPTURE(way.name, seed, i, j, want);
          REQUIRE(std::fabs(static_cast<double>(d(i, j)) - want) <= 2 * 0x1p-24 * static_cast<double>(way.k + 1) * magnitude);
        }
    }
}
