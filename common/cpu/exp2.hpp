// 2^x for a vector, without a table and without intrinsics.
//
// x is split into a whole number n and f in [-1/2, 1/2]; 2^f is a polynomial, 2^n goes into the
// exponent's bits. The coefficients are the minimax polynomials of 2^f for the relative error
// (Remez exchange in 60 digits, then rounded): 1.9e-9 for float (degree 6), 3.1e-18 for double
// (degree 11). With the rounding of each step 0.98 ulp with fused multiply-adds and 1.24 without,
// measured; tests/part2/per_isa_test.cpp holds it.
//
// Valid for x <= 127 (double: 1023). Below -126.5 (-1022.5) the result is exactly 0, for -inf too;
// results are never denormal. NaN gives NaN.
#pragma once

#include "common/cpu/simd.hpp"

namespace flash::FLASH_ISA {

template <class T>
struct Exp2Constants;

template <>
struct Exp2Constants<float> {
  static constexpr int kMantissaBits = 23;
  static constexpr float kBias = 127, kRound = 0x1.8p23f;
  static constexpr float kCoefficients[] = {0x1p0f,         0x1.62e43p-1f,  0x1.ebfbdap-3f,
                                            0x1.c6aed4p-5f, 0x1.3b2dbcp-7f, 0x1.5f456ap-10f,
                                            0x1.41d334p-13f};
};

template <>
struct Exp2Constants<double> {
  static constexpr int kMantissaBits = 52;
  static constexpr double kBias = 1023, kRound = 0x1.8p52;
  static constexpr double kCoefficients[] = {0x1p0,
                                             0x1.62e42fefa39efp-1,
                                             0x1.ebfbdff82c5adp-3,
                                             0x1.c6b08d7049fd1p-5,
                                             0x1.3b2ab6fb9f413p-7,
                                             0x1.5d87fe78cf26ep-10,
                                             0x1.43091310bf6c4p-13,
                                             0x1.ffcbfba7b846fp-17,
                                             0x1.62bfc3c1c57ddp-20,
                                             0x1.b526788bf28c5p-24,
                                             0x1.e620fb7baec45p-28,
                                             0x1.e7aa0e439ebeep-32};
};

template <class T>
FLASH_INLINE Vector<T> exp2(Vector<T> x) {
  using C = Exp2Constants<T>;
  constexpr int kDegree = sizeof(C::kCoefficients) / sizeof(T) - 1;
  x = max(broadcast(-C::kBias), x);
  // Adding 1.5 * 2^23 leaves no bits for a fraction: the sum's last bits are round(x), here with
  // the exponent's bias added to it.
  const Vector<T> rounded = x + (C::kRound + C::kBias);
  const Vector<T> f = x - (rounded - (C::kRound + C::kBias));
  Vector<T> p = f * C::kCoefficients[kDegree] + C::kCoefficients[kDegree - 1];
  FLASH_UNROLL
  for (int k = kDegree - 2; k >= 0; --k) p = p * f + C::kCoefficients[k];
  const BitsVector<T> power = reinterpret_cast<BitsVector<T>>(rounded) << C::kMantissaBits;
  return p * reinterpret_cast<Vector<T>>(power);
}

}  // namespace flash::FLASH_ISA
