// What float32.md says of tensor cores, by its experiments.
#include "part3_flash_cuda/ladder/tensor_core_sums.hpp"

#include <cmath>

#include "common/cuda/device.hpp"
#include "common/inputs.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"

using namespace flash;
using namespace flash::tensor_core;

namespace {

// Before Hopper tensor cores keep fewer bits.
bool is_like_hopper() {
  return !harness::skipped_without_gpu() && device::compute_capability() >= 90;
}

}  // namespace

TEST_CASE("a tensor core cuts addends off at 2^-25 of the largest, and sums at 24 bits") {
  if (!is_like_hopper()) return;
  for (const Format format : {Format::kTf32, Format::kBFloat16}) {
    const auto of = [&](float small, float c) { return sum(format, {1, small}, {1, 1}, c); };
    CHECK(of(0x1p-25f, -1) == 0x1p-25f);
    CHECK(of(0x1p-26f, -1) == 0);
    CHECK(of(0x1.cp-25f, -1) == 0x1p-25f);
    CHECK(sum(format, {-1, -0x1.cp-25f}, {1, 1}, 1) == -0x1p-25f);
    CHECK(of(0x1.cp-23f, 0) == 1 + 0x1p-23f);
  }
}

TEST_CASE("a long sum in a tensor core drifts towards 0, and short ones do not") {
  if (!is_like_hopper()) return;
  Random random(1);
  std::vector<float> p(16384), v(p.size());
  double exact = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    p[i] = rounded(Format::kTf32, static_cast<float>(random.uniform()));
    v[i] = rounded(Format::kTf32, static_cast<float>(0.5 + random.uniform()));
    exact += static_cast<double>(p[i]) * v[i];
  }
  const auto error = [&](int inside) { return sum(Format::kTf32, p, v, 0, inside) / exact - 1; };
  CHECK(error(0) < -2e-5);
  CHECK(std::fabs(error(128)) < 2e-6);
  CHECK(std::fabs(error(32)) < 1e-6);
}

TEST_CASE("planes add up to the number, and each route's product is below its bound") {
  if (!is_like_hopper()) return;
  Random random(3);
  for (const Route& route : routes()) {
    double worst = 0;
    for (int n = 0; n < 300; ++n) {
      // The first has 24 bits, all 1 from the 13th on: two planes of 11 lose the most of it.
      const float a = n == 0 ? 1 + 0x1.ffep-12f : static_cast<float>(std::exp(random.normal())),
                  b = n == 0 ? a : -static_cast<float>(std::exp(random.normal()));
      CAPTURE(route.name, a, b);
      const float scale =
          route.format == Format::kHalf ? scale_for_half(std::fmax(a, std::fabs(b))) : 1;
      const auto [of_a, of_b] = factors(route, a, b, scale);
      const double exact = static_cast<double>(a) * b,
                   got = static_cast<double>(sum(route.format, of_a, of_b)) / scale / scale,
                   error = std::fabs(got / exact - 1);
      CHECK(error <= route.bound + 0x1p-23);  // and the sum itself is cut off
      worst = std::fmax(worst, error);
    }
    CHECK(worst > route.bound / 16);  // the bound says something
  }
  double sum_of_planes = 0;
  for (const float plane : planes(Format::kBFloat16, 3.14159274f, 3)) sum_of_planes += plane;
  CHECK(sum_of_planes == 3.14159274f);  // three times 8 bits are 24
}
