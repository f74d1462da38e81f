// Every way to multiply matrices in a warp (matrix_kernels.cu), on the GPU and on the emulator.
// Products of small integers are exact in float32 whatever the order of the sums: there, each bit
// counts.
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
  for (Index i = 0; i < t.size(); ++i)
    t.data()[i] = static_cast<float>((i * 37 + salt * 11) % 23 - 11);
  return t;
}

// `x` with as many bits of fraction as the type has, so that converting it changes nothing.
Tensor<float, 2> rounded(Tensor<float, 2> t, int fraction_bits) {
  for (Index i = 0; i < t.size(); ++i) {
    int exponent = 0;
    const double fraction = std::frexp(static_cast<double>(t.data()[i]), &exponent);
    t.data()[i] = static_cast<float>(std::ldexp(
        std::nearbyint(std::ldexp(fraction, fraction_bits + 1)), exponent - fraction_bits - 1));
  }
  return t;
}

// The result of each element may be wrong by `tolerance` of the sum of its terms' magnitudes.
void check(const Way& way, const Tensor<float, 2>& a, const Tensor<float, 2>& b,
           const Tensor<float, 2>& c, double tolerance) {
  const auto d = way.run(a, b, c);
  for (Index i = 0; i < way.m; ++i)
    for (Index j = 0; j < way.n; ++j) {
      double want = static_cast<double>(c(i, j)), magnitude = std::fabs(want);
      for (Index k = 0; k < way.k; ++k) {
        const double term = static_cast<double>(a(i, k)) * static_cast<double>(b(k, j));
        want += term;
        magnitude += std::fabs(term);
      }
      CAPTURE(way.name, i, j, want);
      REQUIRE(std::fabs(static_cast<double>(d(i, j)) - want) <= tolerance * magnitude);
    }
}

}  // namespace

TEST_CASE("products of integers are exact, and others as exact as sums in float32 are") {
  if (skipped_without_gpu()) return;
  for (const Way& way : matrix_kernels::ways()) {
    check(way, integers(way.m, way.k, 1), integers(way.k, way.n, 2), integers(way.m, way.n, 3), 0);
    // Tensor cores cut off what a sum of 16 aligned terms drops below 2^-24 of the largest: 2 u a
    // term, and u for c.
    const auto random = [&way](Index rows, Index columns, std::uint64_t seed) {
      return rounded(make_input<2>({rows, columns}, Pattern::kNormal, seed), way.fraction_bits);
    };
    for (std::uint64_t seed = 3; seed <= 60; seed += 3)
      check(way, random(way.m, way.k, seed), random(way.k, way.n, seed + 1),
            make_input<2>({way.m, way.n}, Pattern::kNormal, seed + 2),
            2 * 0x1p-24 * static_cast<double>(way.k + 1));
  }
}
