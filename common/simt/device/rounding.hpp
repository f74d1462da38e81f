// The rounding modes in the names of CUDA's conversions, and the conversion to integers that all of
// them share.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace flash::simt {

enum class Rounding { kNearest, kTowardZero, kDown, kUp };  // _rn (ties to even), _rz, _rd, _ru

// To an integer, which saturates. NaN is 0, or 1 << 63 for integers of 64 bits, as on the GPU.
template <class Integer>
Integer integer_of_double(double value, Rounding rounding) {
  using Limits = std::numeric_limits<Integer>;
  constexpr double end = 2.0 * static_cast<double>(Limits::max() / 2 + 1);
  if (value != value)
    return sizeof(Integer) < 8 ? Integer{0} : static_cast<Integer>(std::uint64_t{1} << 63);
  switch (rounding) {
    case Rounding::kNearest: value = std::nearbyint(value); break;
    case Rounding::kTowardZero: value = std::trunc(value); break;
    case Rounding::kDown: value = std::floor(value); break;
    case Rounding::kUp: value = std::ceil(value); break;
  }
  if (value >= end) return Limits::max();
  return value <= static_cast<double>(Limits::min()) ? Limits::min() : static_cast<Integer>(value);
}

}  // namespace flash::simt
