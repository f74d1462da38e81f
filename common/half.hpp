// Half and BFloat16 for host code: numbers of 16 bits as memory holds them. Kernels turn them into CUDA's own types
// (common/cuda/half.hpp), so that contracts, tests and benchmarks need no CUDA header.
//
//   Half       5 bits of exponent, 10 of digits: up to 65504, 2^-24 is the least above 0
//   BFloat16   the upper half of a float: its range, 7 bits of digits
//
// From a number they round once, to the nearest and ties to even, as a GPU does; to a float they are exact.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/export.hpp"

namespace flash {

template <int kExponentBits>
struct FLASH_EXPORT SmallFloat {  // exported, since what is instantiated with a hidden type is hidden itself
  static constexpr int kDigits = 15 - kExponentBits;
  static constexpr int kLargestExponent = (1 << (kExponentBits - 1)) - 1;
  static constexpr std::uint16_t kInfinity = 0x7fff >> kDigits << kDigits;
  static constexpr std::uint16_t kNaN = 0x7fff;

  std::uint16_t bits;

  SmallFloat() = default;
  explicit SmallFloat(double value) : bits(rounded(value)) {}

  static SmallFloat from_bits(std::uint16_t bits) {
    SmallFloat result;
    result.bits = bits;
    return result;
  }

  operator float() const {
    const int exponent = (bits & kInfinity) >> kDigits, digits = bits & ((1 << kDigits) - 1);
    float magnitude = std::ldexp(static_cast<float>(digits), 1 - kLargestExponent - kDigits);  // subnormal, or 0
    if ((bits & kInfinity) == kInfinity)
      magnitude = digits ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
    else if (exponent > 0)
      magnitude = std::ldexp(static_cast<float>(digits + (1 << kDigits)), exponent - kLargestExponent - kDigits);
    return bits & 0x8000 ? -magnitude : magnitude;
  }

 private:
  static std::uint16_t rounded(double value) {
    if (std::isnan(value)) return kNaN;
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(value);
    if (magnitude >= std::ldexp(2.0, kLargestExponent)) return sign | kInfinity;
    // Below the least normal number the exponent stays, and digits are lost.
    const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), 1 - kLargestExponent) : 1 - kLargestExponent;
    // A normal number has its leading 1 in `digits`, where it adds 1 to the exponent's bits; so does a carry, up to infinity.
    const int digits = static_cast<int>(std::nearbyint(std::ldexp(magnitude, kDigits - exponent)));
    return static_cast<std::uint16_t>(sign | (((exponent + kLargestExponent - 1) << kDigits) + digits));
  }
};

using Half = SmallFloat<5>;
using BFloat16 = SmallFloat<8>;

}  // namespace flash
