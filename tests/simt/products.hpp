// What products of small matrices have to be, by whatever instruction. Products of small integers
// are exact in float32 whatever the order of the sums: there, each bit counts.
#pragma once

#include <cmath>

#include "common/inputs.hpp"
#include "common/tensor.hpp"
#include "harness/catch.hpp"

namespace flash::products {

// Small integers, different in each place.
inline Tensor<float, 2> integers(Index rows, Index columns, int salt) {
  Tensor<float, 2> t({rows, columns});
  for (Index i = 0; i < t.size(); ++i)
    t.data()[i] = static_cast<float>((i * 37 + salt * 11) % 23 - 11);
  return t;
}

// `x` with as many bits of fraction as the type has, so that converting it changes nothing.
inline Tensor<float, 2> rounded(Tensor<float, 2> t, int fraction_bits) {
  for (Index i = 0; i < t.size(); ++i) {
    int exponent = 0;
    const double fraction = std::frexp(static_cast<double>(t.data()[i]), &exponent);
    t.data()[i] = static_cast<float>(std::ldexp(
        std::nearbyint(std::ldexp(fraction, fraction_bits + 1)), exponent - fraction_bits - 1));
  }
  return t;
}

// The result of each element may be wrong by `tolerance` of the sum of its terms' magnitudes.
template <class Way>
void check(const Way& way, Index m, const Tensor<float, 2>& a, const Tensor<float, 2>& b,
           const Tensor<float, 2>& c, double tolerance) {
  const auto d = way.run(a, b, c);
  for (Index i = 0; i < m; ++i)
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

// The same for random matrices.
template <class Way>
void check_random(const Way& way, Index m, double tolerance, std::uint64_t seeds = 3) {
  const auto random = [&way](Index rows, Index columns, std::uint64_t seed) {
    return rounded(make_input<2>({rows, columns}, Pattern::kNormal, seed), way.fraction_bits);
  };
  for (std::uint64_t seed = 3; seed <= 3 * seeds; seed += 3)
    check(way, m, random(m, way.k, seed), random(way.k, way.n, seed + 1),
          make_input<2>({m, way.n}, Pattern::kNormal, seed + 2), tolerance);
}

// How a tensor core rounds: in the sum of a step, terms are cut off at 2^-25 of the largest, and
// the result to 24 bits. The first product is 1, the other 7 of it are `small`.
template <class Way>
void check_truncation(const Way& way, Index m) {
  const auto sum = [&](double small) {
    Tensor<float, 2> a({m, way.k}), b({way.k, way.n});
    for (Index j = 0; j < way.n; ++j)
      for (Index k = 0; k < 8; ++k) b(k, j) = k == 0 ? 1.0f : 0x1p-13f;
    for (Index i = 0; i < m; ++i)
      for (Index k = 0; k < 8; ++k) a(i, k) = static_cast<float>(k == 0 ? 1 : small * 0x1p13);
    const auto d = way.run(a, b, Tensor<float, 2>({m, way.n}));
    for (Index i = 0; i < d.size(); ++i) REQUIRE(d.data()[i] == d.data()[0]);
    return static_cast<double>(d.data()[0]);
  };
  CAPTURE(way.name);
  CHECK(sum(0x1p-26) == 1);
  CHECK(sum(-0x1p-26) == 1);
  CHECK(sum(0x1p-25) == 1 + 0x1p-23);  // 1 + 7 * 2^-25, of which 2^-23 is the last bit
  CHECK(sum(0x1p-25 + 0x1p-26) == 1 + 0x1p-23);
}

}  // namespace flash::products
