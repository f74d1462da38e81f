// Half and BFloat16 for host code: every value there and back, and every place where rounding
// decides.
#include "common/half.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

#include "harness/catch.hpp"

using namespace flash;

namespace {

template <class T>
void check_all_values() {
  // Upwards through all finite values: a float and back is the same value; halfway to the next one,
  // the even one of the two wins.
  int wrong = 0;
  for (int bits = 0; bits < T::kInfinity; ++bits) {
    const T x = T::from_bits(static_cast<std::uint16_t>(bits));
    const double low = static_cast<double>(x);
    const double high =
        bits + 1 < T::kInfinity
            ? static_cast<double>(T::from_bits(static_cast<std::uint16_t>(bits + 1)))
            : std::ldexp(2.0, T::kLargestExponent);  // the first value that is too large
    const double middle = low + (high - low) / 2;
    const int even = bits % 2 == 0 ? bits : bits + 1;
    wrong += !(low < high) || T(low).bits != bits || T(-low).bits != (bits | 0x8000) ||
             T(middle).bits != even || T(std::nextafter(middle, 0)).bits != bits ||
             T(std::nextafter(middle, high)).bits != bits + 1;
  }
  CHECK(wrong == 0);

  constexpr double infinity = std::numeric_limits<double>::infinity();
  CHECK(T(infinity).bits == T::kInfinity);
  CHECK(T(-infinity).bits == (T::kInfinity | 0x8000));
  CHECK(static_cast<float>(T(infinity)) == std::numeric_limits<float>::infinity());
  CHECK(T(std::numeric_limits<double>::max()).bits == T::kInfinity);
  CHECK(T(std::numeric_limits<double>::denorm_min()).bits == 0);
  CHECK(T(std::numeric_limits<double>::quiet_NaN()).bits == T::kNaN);
  CHECK(std::isnan(static_cast<float>(T::from_bits(T::kNaN))));
  CHECK(std::signbit(static_cast<float>(T(-0.0))));
}

}  // namespace

TEST_CASE("half and bfloat16 keep every value and round to the nearest, ties to even") {
  check_all_values<Half>();
  check_all_values<BFloat16>();
}

TEST_CASE("half and bfloat16 are the formats that the hardware has") {
  CHECK(Half(1.0).bits == 0x3c00);
  CHECK(Half(65504.0).bits == 0x7bff);
  CHECK(Half(0x1p-24).bits == 0x0001);
  CHECK(Half(-1.0 / 3).bits == 0xb555);
  CHECK(BFloat16(1.0).bits == 0x3f80);
  CHECK(BFloat16(-1.0 / 3).bits == 0xbeab);
  CHECK(BFloat16(0x1p-133).bits == 0x0001);
}
