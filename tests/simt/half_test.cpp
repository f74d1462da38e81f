// half and bfloat16 of the emulator, against arithmetic that knows nothing of bits: wide numbers, scaled and rounded to integers.
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "harness/catch.hpp"

// last: __noinline__ is a macro from here on
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace {

using flash::simt::Rounding;
using Bits = std::uint16_t;

#ifdef __SIZEOF_FLOAT128__
using Widest = __float128;
#else
using Widest = long double;  // the same 113 bits on other processors
#endif

// ---- the reference ---------------------------------------------------------------------------------------------------------------

template <class Number>
struct Format;
template <>
struct Format<__half> {
  static constexpr int digits = 10, least_exponent = -14, infinity = 0x7c00;
  static constexpr const char* name = "half";
};
template <>
struct Format<__nv_bfloat16> {
  static constexpr int digits = 7, least_exponent = -126, infinity = 0x7f80;
  static constexpr const char* name = "bfloat16";
};

// The value of 16 bits: digits times a power of two.
template <class Number>
double value(Bits bits) {
  using F = Format<Number>;
  const int exponent = (bits & 0x7fff) >> F::digits, digits = bits & ((1 << F::digits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if ((bits & 0x7fff) > F::infinity) return std::numeric_limits<double>::quiet_NaN();
  if ((bits & 0x7fff) == F::infinity) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(digits, F::least_exponent - F::digits);
  return sign * std::ldexp((1 << F::digits) + digits, F::least_exponent - F::digits + exponent - 1);
}

template <class Number, class Wide>
Bits reference(Wide x, bool negative, Rounding rounding) {
  using F = Format<Number>;
  const int sign = negative ? 0x8000 : 0;
  if (x != x) return 0x7fff;
  if (x < 0) x = -x;
  if (x > std::numeric_limits<double>::max()) return static_cast<Bits>(sign | F::infinity);
  int exponent = x == 0 ? F::least_exponent : std::max(std::ilogb(static_cast<double>(x)), F::least_exponent);
  if (exponent > F::least_exponent && x < std::ldexp(1.0, exponent)) --exponent;  // the conversion to double rounded up
  exponent = std::min(exponent, F::infinity >> F::digits);  // far above all numbers
  const Wide scaled = x * std::ldexp(1.0, F::digits - exponent);
  if (scaled > 0x7fff) {  // beyond the greatest exponent
    const bool away = rounding == Rounding::kNearest || rounding == (negative ? Rounding::kDown : Rounding::kUp);
    return static_cast<Bits>(sign | (away ? F::infinity : F::infinity - 1));
  }
  auto whole = static_cast<int>(scaled);
  const Wide rest = scaled - whole;
  switch (rounding) {
    case Rounding::kNearest: whole += rest > 0.5 || (rest == 0.5 && whole % 2 == 1); break;
    case Rounding::kTowardZero: break;
    case Rounding::kDown: whole += negative && rest > 0; break;
    case Rounding::kUp: whole += !negative && rest > 0; break;
  }
  int bits = ((exponent - F::least_exponent) << F::digits) + whole;
  if (bits >= F::infinity) {
    const bool away = rounding == Rounding::kNearest || rounding == (negative ? Rounding::kDown : Rounding::kUp);
    bits = away ? F::infinity : F::infinity - 1;
  }
  return static_cast<Bits>(sign | bits);
}

template <class Number>
Bits reference(long double x, Rounding rounding = Rounding::kNearest) {
  return reference<Number, long double>(x, std::signbit(x), rounding);
}

// a b + c, exactly as far as rounding goes: what is too small to be added is replaced by something that fits.
template <class Number>
Bits reference_of_fma(double a, double b, double c) {
  const double product = a * b;  // exact
  double smaller = std::abs(product) < std::abs(c) ? product : c;
  const double larger = std::abs(product) < std::abs(c) ? c : product;
  if (std::isfinite(larger) && smaller != 0 && std::abs(smaller) < std::abs(larger) * 0x1p-60)
    smaller = std::copysign(larger * 0x1p-60, smaller);
  const Widest sum = Widest{larger} + Widest{smaller};
  return reference<Number, Widest>(sum, sum < 0 || (sum == 0 && std::signbit(product + c)), Rounding::kNearest);
}

// ---- counting differences ----------------------------------------------------------------------------------------------------------

// A CHECK() for each of millions of values would take minutes.
class Count {
 public:
  explicit Count(std::string what) : what_(std::move(what)) {}
  template <class... Arguments>
  void same(std::uint64_t got, std::uint64_t want, Arguments... arguments) {
    ++count_;
    if (got == want || wrong_++ > 0) return;
    ((first_ += " " + Catch::StringMaker<Arguments>::convert(arguments)), ...);
    first_ += " gives " + std::to_string(got) + ", not " + std::to_string(want);
  }
  ~Count() {
    INFO(what_ << ": " << wrong_ << " of " << count_ << " are wrong, the first:" << first_);
    CHECK(wrong_ == 0);
    CHECK(count_ > 0);
  }

 private:
  std::string what_, first_;
  std::uint64_t count_ = 0, wrong_ = 0;
};

template <class Number>
Bits bits_of(Number x) {
  return std::bit_cast<Bits>(x);
}
template <class Number>
Number number(Bits bits) {
  return std::bit_cast<Number>(bits);
}

// Where rounding changes its mind: the midpoints between two numbers when it goes to the nearest, else the numbers themselves.
template <class Number>
std::vector<float> boundaries(Rounding mode) {
  std::vector<float> floats;
  for (unsigned k = 0; k < 0x10000; ++k) {
    const auto low = value<Number>(static_cast<Bits>(k)), high = value<Number>(static_cast<Bits>(k + 1));
    floats.push_back(static_cast<float>(mode == Rounding::kNearest ? low / 2 + high / 2 : low));
  }
  return floats;
}

// Of a like size, every second time.
template <class Number>
std::vector<std::pair<Bits, Bits>> random_pairs(int count) {
  std::vector<std::pair<Bits, Bits>> pairs;
  std::mt19937 random(3);
  for (int k = 0; k < count; ++k) {
    const auto a = static_cast<Bits>(random()), b = static_cast<Bits>(random());
    const unsigned exponents = 8u << Format<Number>::digits;
    pairs.emplace_back(a, k % 2 == 0 ? b : static_cast<Bits>(((a & 0x7fffu) + b % exponents - exponents / 2) ^ (b & 0x8000u)));
  }
  return pairs;
}

}  // namespace

// ---- types -------------------------------------------------------------------------------------------------------------------------

TEMPLATE_TEST_CASE("half and bfloat16 may lie in shared memory and in a shuffle", "", __half, __nv_bfloat16) {
  STATIC_REQUIRE(sizeof(TestType) == 2);
  STATIC_REQUIRE(alignof(TestType) == 2);
  STATIC_REQUIRE(std::is_trivially_default_constructible_v<TestType>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<TestType>);
}

TEMPLATE_TEST_CASE("half2 and bfloat162 are 4 bytes, the low half first", "", __half2, __nv_bfloat162) {
  STATIC_REQUIRE(sizeof(TestType) == 4);
  STATIC_REQUIRE(alignof(TestType) == 4);
  STATIC_REQUIRE(std::is_trivially_default_constructible_v<TestType>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<TestType>);
  const TestType pair{1.f, 2.f};
  CHECK(std::bit_cast<std::uint32_t>(pair) == (std::uint32_t{bits_of(pair.y)} << 16 | bits_of(pair.x)));
  CHECK(static_cast<float>(pair.x) == 1);
  CHECK(__low2float(pair) == 1);
  CHECK(__high2float(pair) == 2);
  CHECK(__low2float(__lowhigh2highlow(pair)) == 2);
}

TEST_CASE("the names of half and bfloat16 do what they say") {
  CHECK(static_cast<float>(CUDART_MAX_NORMAL_FP16) == 65504);
  CHECK(static_cast<float>(CUDART_INF_FP16) == INFINITY);
  CHECK(static_cast<float>(CUDART_MIN_DENORM_FP16) == 0x1p-24f);
  CHECK(static_cast<float>(CUDART_ONE_FP16) == 1);
  CHECK(__hisnan(CUDART_NAN_FP16));
  CHECK(static_cast<float>(CUDART_MAX_NORMAL_BF16) == 0x1.fep127f);
  CHECK(static_cast<float>(CUDART_INF_BF16) == INFINITY);
  CHECK(static_cast<float>(CUDART_MIN_DENORM_BF16) == 0x1p-133f);
  CHECK(static_cast<float>(CUDART_ONE_BF16) == 1);
  CHECK(__hisnan(CUDART_NAN_BF16));

  const half2 h = __floats2half2_rn(3, 4);
  CHECK(__half22float2(h).x == 3);
  CHECK(__half22float2(h).y == 4);
  CHECK(__half2float(__low2half(h)) == 3);
  CHECK(__half2float(__high2half(h)) == 4);
  CHECK((__half2half2(5) == half2(5, 5)));
  CHECK((__float2half2_rn(6) == half2(6, 6)));
  CHECK((__halves2half2(1, 2) == half2(1, 2)));
  CHECK((__float22half2_rn({1, 2}) == half2(1, 2)));
  CHECK((__lows2half2(h, half2(1, 2)) == half2(3, 1)));
  CHECK((__highs2half2(h, half2(1, 2)) == half2(4, 2)));
  CHECK((__low2half2(h) == half2(3, 3)));
  CHECK((__high2half2(h) == half2(4, 4)));
  CHECK((make_half2(1, 2) == half2(1, 2)));
  CHECK(__half_as_ushort(-2.f) == 0xc000);
  CHECK(__half_as_short(-2.f) == -0x4000);
  CHECK(__half2float(__short_as_half(-0x4000)) == -2);

  const nv_bfloat162 b = __floats2bfloat162_rn(3, 4);
  CHECK(__bfloat1622float2(b).x == 3);
  CHECK(__bfloat1622float2(b).y == 4);
  CHECK(__bfloat162float(__low2bfloat16(b)) == 3);
  CHECK(__bfloat162float(__high2bfloat16(b)) == 4);
  CHECK((__bfloat162bfloat162(5) == nv_bfloat162(5, 5)));
  CHECK((__float2bfloat162_rn(6) == nv_bfloat162(6, 6)));
  CHECK((__halves2bfloat162(1, 2) == nv_bfloat162(1, 2)));
  CHECK((__float22bfloat162_rn({1, 2}) == nv_bfloat162(1, 2)));
  CHECK((__lows2bfloat162(b, nv_bfloat162(1, 2)) == nv_bfloat162(3, 1)));
  CHECK((__highs2bfloat162(b, nv_bfloat162(1, 2)) == nv_bfloat162(4, 2)));
  CHECK((make_bfloat162(1, 2) == nv_bfloat162(1, 2)));
  CHECK(__bfloat16_as_ushort(-2.f) == 0xc000);
  CHECK(__bfloat162float(__ushort_as_bfloat16(0x4049)) == 3.140625f);

  CHECK(static_cast<float>(static_cast<__half>(nv_bfloat16(1e6f))) == INFINITY);
  CHECK(static_cast<float>(static_cast<nv_bfloat16>(__half(0x1.ffcp0f))) == 2);
}

// ---- conversions -------------------------------------------------------------------------------------------------------------------

TEMPLATE_TEST_CASE("each of the 65536 becomes its float, and itself again", "", __half, __nv_bfloat16) {
  Count there(std::string(Format<TestType>::name) + " to float"), back("and back");
  for (unsigned k = 0; k < 0x10000; ++k) {
    const auto bits = static_cast<Bits>(k);
    const float x = number<TestType>(bits);
    const double want = value<TestType>(bits);
    there.same(std::isnan(want) ? std::isnan(x) : x == want && std::signbit(x) == std::signbit(want), true, k);
    for (const Rounding mode : {Rounding::kNearest, Rounding::kTowardZero, Rounding::kDown, Rounding::kUp}) {
      back.same(bits_of(TestType::rounded(x, mode)), std::isnan(want) ? 0x7fff : bits, k);
      back.same(bits_of(TestType::rounded(double{x}, mode)), std::isnan(want) ? 0x7fff : bits, k);
    }
  }
}

TEMPLATE_TEST_CASE("floats around each rounding boundary are rounded once, in each direction", "", __half, __nv_bfloat16) {
  std::vector<float> others{0.f, 65504.f, 65519.996f, 65520.f, 65536.f, 0x1p-24f, 0x1p-25f, 0x1.000002p-25f, 0x1p-26f, 1e-45f, 3.4e38f, INFINITY, NAN};
  std::mt19937 random(1);
  for (int k = 0; k < 100'000; ++k) others.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (const Rounding mode : {Rounding::kNearest, Rounding::kTowardZero, Rounding::kDown, Rounding::kUp}) {
    Count count(std::string(Format<TestType>::name) + ", rounding " + std::to_string(static_cast<int>(mode)));
    const auto check = [&](auto x) { count.same(bits_of(TestType::rounded(x, mode)), reference<TestType>(x, mode), x); };
    for (const float x : boundaries<TestType>(mode)) {
      for (const float near : {std::nextafterf(x, -INFINITY), x, std::nextafterf(x, INFINITY)}) check(near);
      for (const double near : {std::nextafter(double{x}, -INFINITY), std::nextafter(double{x}, INFINITY)}) check(near);
    }
    for (const float x : others)
      for (const float signed_x : {x, -x}) check(signed_x);
  }
}

TEST_CASE("the functions' names stand for the right directions") {
  CHECK(__half_as_ushort(__float2half_rn(0x1.006p0f)) == 0x3c02);
  CHECK(__half_as_ushort(__float2half(0x1.006p0f)) == 0x3c02);
  CHECK(__half_as_ushort(__float2half_rz(0x1.006p0f)) == 0x3c01);
  CHECK(__half_as_ushort(__float2half_rd(-0x1.006p0f)) == 0xbc02);
  CHECK(__half_as_ushort(__float2half_ru(-0x1.006p0f)) == 0xbc01);
  CHECK(__half_as_ushort(__double2half(0x1.0020000000001p0)) == 0x3c01);
  CHECK(__bfloat16_as_ushort(__float2bfloat16_rn(0x1.03p0f)) == 0x3f82);
  CHECK(__bfloat16_as_ushort(__float2bfloat16(0x1.03p0f)) == 0x3f82);
  CHECK(__bfloat16_as_ushort(__float2bfloat16_rz(0x1.03p0f)) == 0x3f81);
  CHECK(__bfloat16_as_ushort(__float2bfloat16_rd(-0x1.03p0f)) == 0xbf82);
  CHECK(__bfloat16_as_ushort(__float2bfloat16_ru(-0x1.03p0f)) == 0xbf81);
  CHECK(__bfloat16_as_ushort(__double2bfloat16(0x1.0100000000001p0)) == 0x3f81);
}

#if defined(__FLT16_MAX__) && defined(__GNUC__) && !defined(__clang__)
TEST_CASE("half is rounded as the compiler's _Float16 is") {
  Count count("float to half");
  for (const float x : boundaries<__half>(Rounding::kNearest))
    for (const float near : {std::nextafterf(x, -INFINITY), x, std::nextafterf(x, INFINITY)})
      if (!std::isnan(near)) count.same(bits_of(__half(near)), std::bit_cast<Bits>(static_cast<_Float16>(near)), near);
}
#endif

TEMPLATE_TEST_CASE("integers become half or bfloat16 in one rounding, and saturate on the way back", "", __half, __nv_bfloat16) {
  Count count(std::string(Format<TestType>::name) + " of integers");
  std::mt19937_64 random(2);
  for (int k = 0; k < 30'000; ++k) {
    const std::uint64_t x = (random() >> random() % 64) & ~std::uint64_t{0} << random() % 64;
    for (const std::uint64_t near : {x - 1, x, x + 1}) {
      const auto integer = static_cast<long long>(near);
      const auto small = static_cast<int>(near);
      for (const Rounding mode : {Rounding::kNearest, Rounding::kTowardZero, Rounding::kDown, Rounding::kUp}) {
        count.same(bits_of(TestType::rounded(integer, mode)), reference<TestType>(integer, mode), integer);
        count.same(bits_of(TestType::rounded(near, mode)), reference<TestType>(near, mode), near);
        count.same(bits_of(TestType::rounded(small, mode)), reference<TestType>(small, mode), small);
      }
    }
  }
  CHECK(static_cast<int>(TestType(-7.9f)) == -7);
  CHECK(static_cast<unsigned>(TestType(-7.9f)) == 0);
  CHECK(static_cast<short>(TestType(40'000)) == 32767);
  CHECK(static_cast<short>(TestType(-40'000)) == -32768);
  CHECK(static_cast<int>(TestType(NAN)) == 0);
  CHECK(static_cast<long long>(TestType(INFINITY)) == std::numeric_limits<long long>::max());
  CHECK(static_cast<unsigned long long>(TestType(INFINITY)) == std::numeric_limits<unsigned long long>::max());
  CHECK(static_cast<long long>(TestType(-INFINITY)) == std::numeric_limits<long long>::min());
}

TEST_CASE("conversions to integers round as their names say") {
  CHECK(__half2int_rn(2.5f) == 2);
  CHECK(__half2int_rn(3.5f) == 4);
  CHECK(__half2int_rz(-2.5f) == -2);
  CHECK(__half2int_rd(-2.5f) == -3);
  CHECK(__half2int_ru(2.25f) == 3);
  CHECK(__bfloat162int_rn(-3.5f) == -4);
  CHECK(__bfloat162uint_rz(3.5f) == 3);
  CHECK(__half2float(__int2half_rn(2049)) == 2048);
  CHECK(__half2float(__int2half_ru(2049)) == 2050);
  CHECK(__bfloat162float(__int2bfloat16_rz(257)) == 256);
}

// ---- arithmetic --------------------------------------------------------------------------------------------------------------------

TEMPLATE_TEST_CASE("sums, differences, products and quotients are rounded once", "", __half, __nv_bfloat16) {
  Count add("+"), subtract("-"), multiply("*"), divide("/"), assigned("assignments"), unary("signs");
  for (const auto& [x, y] : random_pairs<TestType>(150'000)) {
    const auto a = number<TestType>(x), b = number<TestType>(y);
    const long double va = value<TestType>(x), vb = value<TestType>(y);
    const auto want = [](long double result) { return reference<TestType>(result); };
    add.same(bits_of(a + b), want(va + vb), x, y);
    subtract.same(bits_of(a - b), want(va - vb), x, y);
    multiply.same(bits_of(a * b), want(va * vb), x, y);
    divide.same(bits_of(a / b), want(va / vb), x, y);
    add.same(bits_of(__hadd(a, b)), bits_of(a + b), x, y);
    subtract.same(bits_of(__hsub(a, b)), bits_of(a - b), x, y);
    multiply.same(bits_of(__hmul(a, b)), bits_of(a * b), x, y);
    divide.same(bits_of(__hdiv(a, b)), bits_of(a / b), x, y);
    TestType c = a;
    c += b;
    assigned.same(bits_of(c), want(va + vb), x, y);
    c = a;
    c -= b;
    assigned.same(bits_of(c), want(va - vb), x, y);
    c = a;
    c *= b;
    assigned.same(bits_of(c), want(va * vb), x, y);
    c = a;
    c /= b;
    assigned.same(bits_of(c), want(va / vb), x, y);
    unary.same(bits_of(-a), want(-va), x);
    unary.same(bits_of(__hneg(a)), want(-va), x);
    unary.same(bits_of(__habs(a)), want(std::fabs(va)), x);
  }
}

TEMPLATE_TEST_CASE("a fused multiply-add is rounded once", "", __half, __nv_bfloat16) {
  Count count(Format<TestType>::name);
  const auto check = [&count](Bits x, Bits y, Bits z) {
    const Bits want = reference_of_fma<TestType>(value<TestType>(x), value<TestType>(y), value<TestType>(z));
    count.same(bits_of(__hfma(number<TestType>(x), number<TestType>(y), number<TestType>(z))), want, x, y, z);
  };
  std::mt19937 random(4);
  for (const auto& [x, y] : random_pairs<TestType>(150'000)) {
    check(x, y, static_cast<Bits>(random()));
    check(x, y, bits_of(number<TestType>(x) * number<TestType>(y)) ^ 0x8000);                // cancels all but the product's error
    check(x, y, static_cast<Bits>(bits_of(number<TestType>(x) * number<TestType>(y)) ^ (random() & 0x8fff)));  // of a like size
  }
  // A product halfway between two numbers, and an addend that is too small for anything but to break the tie.
  const int digits = Format<TestType>::digits;
  const TestType a(1 + std::ldexp(1.0, -(digits + 1) / 2)), b(1 + std::ldexp(1.0, -(digits + 1) + (digits + 1) / 2)), tiny = number<TestType>(1);
  for (const TestType c : {tiny, -tiny, TestType(0), TestType(std::ldexp(1.0, -14)), TestType(-std::ldexp(1.0, -14))}) check(bits_of(a), bits_of(b), bits_of(c));
  CHECK(bits_of(__hfma(TestType(3), TestType(5), TestType(-15))) == 0);
}

TEST_CASE("the pair functions do to both halves what the others do to one") {
  const half2 a{1.5f, -2.f}, b{4.f, 3.f}, c{1.f, 1.f};
  CHECK((a + b == half2(5.5f, 1.f)));
  CHECK((a - b == half2(-2.5f, -5.f)));
  CHECK((a * b == half2(6.f, -6.f)));
  CHECK((b / a == half2(4 / 1.5f, -1.5f)));
  CHECK((__hadd2(a, b) == a + b));
  CHECK((__hsub2(a, b) == a - b));
  CHECK((__hmul2(a, b) == a * b));
  CHECK((__h2div(a, b) == a / b));
  CHECK((__hfma2(a, b, c) == half2(7.f, -5.f)));
  CHECK((-a == half2(-1.5f, 2.f)));
  CHECK((__hneg2(a) == -a));
  CHECK((__habs2(a) == half2(1.5f, 2.f)));
  CHECK((__hmax2(a, b) == b));
  CHECK((__hmin2(a, b) == a));
  CHECK((__heq2(a, half2(1.5f, 2.f)) == half2(1.f, 0.f)));
  CHECK((__hlt2(a, half2(2.f, -2.f)) == half2(1.f, 0.f)));
  CHECK((h2exp2(b) == half2(16.f, 8.f)));
  CHECK((h2sqrt(half2(4.f, 9.f)) == half2(2.f, 3.f)));
  half2 sum = a;
  sum += b;
  CHECK((sum == a + b));
  sum *= c;
  CHECK((sum == a + b));
}

// ---- comparisons -------------------------------------------------------------------------------------------------------------------

TEMPLATE_TEST_CASE("comparisons are those of the values, and NaN is not even itself", "", __half, __nv_bfloat16) {
  Count count(Format<TestType>::name);
  auto pairs = random_pairs<TestType>(100'000);
  for (const Bits x : {0x0000, 0x8000, 0x7fff, 0xffff, 0x3c00, Format<TestType>::infinity, Format<TestType>::infinity + 1})
    for (const Bits y : {0x0000, 0x8000, 0x7fff, 0xffff, 0x3c00, Format<TestType>::infinity, Format<TestType>::infinity + 1})
      pairs.emplace_back(x, y);
  for (const auto& [x, y] : pairs) {
    const auto a = number<TestType>(x), b = number<TestType>(y);
    const double va = value<TestType>(x), vb = value<TestType>(y);
    const bool got[] = {a == b, a != b, a < b, a <= b, a > b, a >= b, __heq(a, b), __hne(a, b), __hlt(a, b), __hle(a, b), __hgt(a, b), __hge(a, b), __hisnan(a)};
    const bool want[] = {va == vb, va != vb, va < vb, va <= vb, va > vb, va >= vb, va == vb, va < vb || va > vb, va < vb, va <= vb, va > vb, va >= vb, std::isnan(va)};
    for (std::size_t k = 0; k < std::size(got); ++k) count.same(got[k], want[k], x, y, k);
    count.same(static_cast<std::uint64_t>(__hisinf(a)), static_cast<std::uint64_t>(std::isinf(va) ? (va > 0 ? 1 : -1) : 0), x);
    if (std::isnan(va) && std::isnan(vb)) {
      count.same(bits_of(__hmax(a, b)), 0x7fff, x, y);
      count.same(bits_of(__hmin(a, b)), 0x7fff, x, y);
    } else if (va != vb) {
      count.same(bits_of(__hmax(a, b)), bits_of(TestType(std::fmax(va, vb))), x, y);
      count.same(bits_of(__hmin(a, b)), bits_of(TestType(std::fmin(va, vb))), x, y);
    }
    if (std::isnan(va) || std::isnan(vb)) {
      count.same(bits_of(__hmax_nan(a, b)), 0x7fff, x, y);
      count.same(bits_of(__hmin_nan(a, b)), 0x7fff, x, y);
    } else {
      count.same(bits_of(__hmax_nan(a, b)), bits_of(__hmax(a, b)), x, y);
      count.same(bits_of(__hmin_nan(a, b)), bits_of(__hmin(a, b)), x, y);
    }
  }
  const TestType zero(0.f), minus_zero(-0.f);
  CHECK(bits_of(__hmax(minus_zero, zero)) == 0);
  CHECK(bits_of(__hmax(zero, minus_zero)) == 0);
  CHECK(bits_of(__hmin(minus_zero, zero)) == 0x8000);
  CHECK(bits_of(__hmin(zero, minus_zero)) == 0x8000);
}

TEST_CASE("a comparison of pairs holds if it holds for both halves, != as well") {
  const half2 a{1.f, 2.f}, b{1.f, 3.f}, c{NAN, NAN};
  CHECK(a == a);
  CHECK_FALSE(a == b);
  CHECK_FALSE(a != b);
  CHECK(c != c);
  CHECK_FALSE(__hbne2(c, c));
  CHECK(__hbeq2(a, a));
  CHECK(__hble2(a, b));
  CHECK_FALSE(__hblt2(a, b));
  CHECK(__hbge2(b, a));
  CHECK_FALSE(__hbgt2(b, a));
}

// ---- functions ---------------------------------------------------------------------------------------------------------------------

TEMPLATE_TEST_CASE("functions are within a unit in the last place, and roots are rounded right", "", __half, __nv_bfloat16) {
  Count exact("hsqrt, hrsqrt, hrcp, whole numbers"), near("functions");
  for (unsigned k = 0; k < 0x10000; ++k) {
    const auto bits = static_cast<Bits>(k);
    const auto a = number<TestType>(bits);
    const double x = value<TestType>(bits);
    exact.same(bits_of(hsqrt(a)), reference<TestType>(std::sqrt(x)), k);
    exact.same(bits_of(hrsqrt(a)), reference<TestType>(1 / std::sqrt(x)), k);
    exact.same(bits_of(hrcp(a)), reference<TestType>(1 / x), k);
    exact.same(bits_of(hceil(a)), reference<TestType>(std::ceil(x)), k);
    exact.same(bits_of(hfloor(a)), reference<TestType>(std::floor(x)), k);
    exact.same(bits_of(htrunc(a)), reference<TestType>(std::trunc(x)), k);
    exact.same(bits_of(hrint(a)), reference<TestType>(std::nearbyint(x)), k);
    const std::pair<TestType, double> functions[] = {
        {hexp(a), std::exp(x)},   {hexp2(a), std::exp2(x)}, {hexp10(a), std::pow(10.0, x)}, {hlog(a), std::log(x)},  {hlog2(a), std::log2(x)},
        {hlog10(a), std::log10(x)}, {hsin(a), std::sin(x)},   {hcos(a), std::cos(x)},         {htanh(a), std::tanh(x)}};
    for (const auto& [got, want] : functions) {
      const int difference = bits_of(got) - reference<TestType>(want);
      near.same(difference >= -1 && difference <= 1, true, k, static_cast<float>(got), want);
    }
  }
}

// ---- in a kernel -------------------------------------------------------------------------------------------------------------------

namespace {

// Each thread adds to one sum of all blocks, and a warp's values cross over by a shuffle and by shared memory.
template <class Number, class Pair>
__global__ void meet(Number* sum, Pair* pair_sum, Pair* shuffled, Number* reversed) {
  __shared__ Number stored[32];
  const int lane = static_cast<int>(threadIdx.x);
  stored[lane] = lane;
  atomicAdd(sum, Number(1));
  atomicAdd(pair_sum, Pair(1, 2));
  shuffled[lane] = __shfl_xor_sync(0xffffffffu, Pair(lane, -lane), 1);
  __syncthreads();
  reversed[lane] = __ldg(&stored[31 - lane]);
}

}  // namespace

TEMPLATE_TEST_CASE("half and bfloat16 add atomically, shuffle, and lie in shared memory", "", __half, __nv_bfloat16) {
  using Pair = std::conditional_t<std::is_same_v<TestType, __half>, __half2, __nv_bfloat162>;
  constexpr unsigned blocks = 4;
  const std::size_t bytes = 64 * sizeof(Pair);
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 4 * bytes) == cudaSuccess);
  REQUIRE(cudaMemset(memory, 0, 4 * bytes) == cudaSuccess);
  auto* const sum = static_cast<TestType*>(memory);
  auto* const pair_sum = reinterpret_cast<Pair*>(static_cast<char*>(memory) + bytes);
  auto* const shuffled = pair_sum + 64;
  auto* const reversed = reinterpret_cast<TestType*>(shuffled + 64);
  CHECK(flash::simt::launch("meet", meet<TestType, Pair>, {blocks, 1, 1}, {32, 1, 1}, 0,
                            std::tuple<TestType*, Pair*, Pair*, TestType*>(sum, pair_sum, shuffled, reversed)) == cudaSuccess);
  TestType host_sum, host_reversed[32];
  Pair host_pair_sum, host_shuffled[32];
  REQUIRE(cudaMemcpy(&host_sum, sum, sizeof host_sum, cudaMemcpyDefault) == cudaSuccess);
  REQUIRE(cudaMemcpy(&host_pair_sum, pair_sum, sizeof host_pair_sum, cudaMemcpyDefault) == cudaSuccess);
  REQUIRE(cudaMemcpy(host_shuffled, shuffled, sizeof host_shuffled, cudaMemcpyDefault) == cudaSuccess);
  REQUIRE(cudaMemcpy(host_reversed, reversed, sizeof host_reversed, cudaMemcpyDefault) == cudaSuccess);
  CHECK(static_cast<float>(host_sum) == 32 * blocks);
  CHECK((host_pair_sum == Pair(32 * blocks, 64 * blocks)));
  for (int lane = 0; lane < 32; ++lane) {
    CHECK((host_shuffled[lane] == Pair(lane ^ 1, -(lane ^ 1))));
    CHECK(static_cast<int>(host_reversed[lane]) == 31 - lane);
  }
  CHECK(cudaFree(memory) == cudaSuccess);
}
