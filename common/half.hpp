// Half and BFloat16 for host code: numbers of 16 bits as memory holds them. Kernels turn them into
// CUDA's own types (common/cuda/half.hpp), so that contracts, tests and benchmarks need no CUDA
// header.
//
//   Half       5 bits of exponent, 10 of digits: up to 65504, 2^-24 is the least above 0
//   BFloat16   the upper half of a float: its range, 7 bits of digits
//
// From a number they round once, to the nearest and ties to even, as a GPU does; to a float they
// are exact.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/export.hpp"

namespace flash {

template <int kExponentBits>
struct FLASH_EXPORT
    SmallFloat {  // exported, since what is instantiated with a hidden type is hidden itself
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
    const std::uint32_t magnitude = bits & 0x7fff, sign = static_cast<std::uint32_t>(bits & 0x8000)
                                                          << 16;
    // As a float's bits it is too small by the factor between the two exponents' ranges, also where
    // it is subnormal.
    constexpr float kFactor =
        std::bit_cast<float>(static_cast<std::uint32_t>(254 - kLargestExponent) << 23);
    float value = std::bit_cast<float>(magnitude << (23 - kDigits)) * kFactor;
    if (magnitude >= kInfinity)
      value = magnitude > kInfinity ? std::numeric_limits<float>::quiet_NaN()
                                    : std::numeric_limits<float>::infinity();
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }

 private:
  static std::uint16_t rounded(double value) {
    if (std::isnan(value)) return kNaN;
    const auto all_bits = std::bit_cast<std::uint64_t>(value);
    const auto sign = static_cast<std::uint16_t>(all_bits >> 48 & 0x8000);
    // Below the least normal number the exponent stays, and digits are lost.
    const int exponent =
        std::max(static_cast<int>(all_bits >> 52 & 0x7ff) - 1023, 1 - kLargestExponent);
    if (exponent > kLargestExponent) return sign | kInfinity;
    // In a double of this size the last bit is worth as much as our last digit: the addition
    // rounds, and leaves the digits there.
    const auto size =
        std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 52 - kDigits + 1023) << 52);
    const int digits =
        static_cast<int>(std::bit_cast<std::uint64_t>(std::fabs(value) + size) & 0xffff);
    // A normal number has its leading 1 in `digits`, where it adds 1 to the exponent's bits; so
    // does a carry, up to infinity.
    return static_cast<std::uint16_t>(sign |
                                      (((exponent + kLargestExponent - 1) << kDigits) + digits));
  }
};

using Half = SmallFloat<5>;
using BFloat16 = SmallFloat<8>;

}  // namespace flash
