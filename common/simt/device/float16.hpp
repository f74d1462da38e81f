// What half and bfloat16 have in common, which is all but the split of 16 bits into exponent and digits, and the names of some
// functions. Values are computed in double and rounded once: 53 bits are more than twice the 11 or 8 of the result and 2 more,
// so that for + - * / and sqrt nothing shows of the rounding in between. Functions that approximate on the GPU (hexp and its kin)
// are the host's here.
//
// Most functions are friends, found through the type of an argument. Arguments are values, and members are always inlined: so
// they stay in registers, where a checked build has nothing to check.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/simt/include/cuda_runtime_api.h"  // first: __forceinline__
#include "common/simt/device/atomics.hpp"
#include "common/simt/device/rounding.hpp"
#include "common/simt/device/warp.hpp"

namespace flash::simt {

// ---- bits ------------------------------------------------------------------------------------------------------------------------

// A float or a double, rounded to 16 bits. NaN becomes 0x7fff, as on the GPU.
template <int kExponentBits, class Value>
std::uint16_t rounded_bits(Value value, Rounding rounding) {
  using Limits = std::numeric_limits<Value>;
  using Bits = std::conditional_t<sizeof(Value) == 4, std::uint32_t, std::uint64_t>;
  constexpr int width = 8 * sizeof(Bits), value_digits = Limits::digits - 1, digits = 15 - kExponentBits;
  constexpr int excess = Limits::max_exponent - (1 << (kExponentBits - 1));  // of the value's exponent bias over the result's
  constexpr Bits sign = Bits{1} << (width - 1), half = sign;
  constexpr unsigned infinity = 0x7fff >> digits << digits;

  const Bits bits = std::bit_cast<Bits>(value), magnitude = bits & ~sign;
  const bool negative = (bits & sign) != 0;
  if (magnitude > std::bit_cast<Bits>(Limits::infinity())) return 0x7fff;
  if (magnitude == std::bit_cast<Bits>(Limits::infinity())) return static_cast<std::uint16_t>((negative ? 0x8000u : 0u) | infinity);

  // Exponent and digits are one number, so that a carry out of the digits goes where it belongs.
  Bits number = magnitude - (Bits{excess} << value_digits);
  int dropped = value_digits - digits;
  if (excess > 0 && magnitude < Bits{excess + 1} << value_digits) {  // subnormal, or zero: the exponent is spent on zeros in front
    const int exponent = static_cast<int>(magnitude >> value_digits);
    number = magnitude - (Bits(exponent) << value_digits) + (Bits{exponent != 0} << value_digits);
    dropped += excess + 1 - (exponent != 0 ? exponent : 1);
    if (dropped > value_digits + 2) dropped = value_digits + 2;  // all of it, and less than half
  }
  Bits kept = number >> dropped, rest = number << (width - dropped);  // rest: as a fraction of 1 << width
  if (kept >= infinity) {
    kept = infinity - 1;  // far beyond the greatest value
    rest = ~Bits{0};
  }
  bool away = false;
  switch (rounding) {
    case Rounding::kNearest: away = rest > half || (rest == half && (kept & 1) != 0); break;
    case Rounding::kTowardZero: break;
    case Rounding::kDown: away = negative && rest != 0; break;
    case Rounding::kUp: away = !negative && rest != 0; break;
  }
  return static_cast<std::uint16_t>((negative ? 0x8000u : 0u) | (static_cast<unsigned>(kept) + away));
}

// The float that 16 bits stand for: always exact. A half that is NaN becomes 0x7fffffff, as on the GPU.
template <int kExponentBits>
float float_of_bits(std::uint16_t bits) {
  constexpr int digits = 15 - kExponentBits, excess = 128 - (1 << (kExponentBits - 1));
  if constexpr (excess == 0) return std::bit_cast<float>(std::uint32_t{bits} << 16);
  constexpr unsigned infinity = 0x7fff >> digits << digits;
  const unsigned sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= infinity) return std::bit_cast<float>(magnitude > infinity ? 0x7fffffffu : sign | 0x7f800000u);
  // A multiplication puts the exponent right, and makes subnormal numbers normal.
  return std::bit_cast<float>(sign | magnitude << (23 - digits)) * std::bit_cast<float>((127u + excess) << 23);
}

// An integer as a double, exactly; of those that do not fit, what is lost is left as one bit, which is all that rounding needs.
template <class Integer>
double double_of_integer(Integer value) {
  if constexpr (sizeof value < 8) return value;
  const bool negative = value < 0;
  std::uint64_t magnitude = static_cast<std::uint64_t>(value);
  if (negative) magnitude = 0 - magnitude;
  if (magnitude >> 53 != 0) magnitude = (magnitude >> 11 | ((magnitude & 0x7ff) != 0)) << 11;
  return negative ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
}

// a b + c for factors of up to 26 bits. Not rounded to nearest: the last bit of an inexact result is made odd, which a second
// rounding takes for the rest that was lost. ("Round to odd"; the error of the addition is Knuth's two-sum.)
inline double multiply_add_to_odd(double a, double b, double c) {
  const double product = a * b, sum = product + c, part = sum - product;
  const double error = (product - (sum - part)) + (c - part);
  std::int64_t bits = std::bit_cast<std::int64_t>(sum);
  if ((error < 0 || error > 0) && (bits & 1) == 0) bits += (error > 0) == (sum > 0) ? 1 : -1;
  return std::bit_cast<double>(bits);
}

// ---- one number --------------------------------------------------------------------------------------------------------------------

template <int kExponentBits>
class Float16 {
 public:
  Float16() = default;  // trivial: a __shared__ array of them has no initialiser

  template <class Value>
  static Float16 rounded(Value value, Rounding rounding) {
    if constexpr (std::is_integral_v<Value>)
      return from_bits(rounded_bits<kExponentBits>(double_of_integer(value), rounding));
    else
      return from_bits(rounded_bits<kExponentBits>(value, rounding));
  }
  static Float16 from_bits(std::uint16_t bits) {
    Float16 result;
    result.bits_ = bits;
    return result;
  }
  __forceinline__ std::uint16_t bits() const { return bits_; }

  // Implicit, from and to the same types as in CUDA; so what is ambiguous there is ambiguous here: h + 1.f, h < 0.
#define FLASH_SIMT_FROM(Value) \
  __forceinline__ Float16(Value value) : Float16(rounded(value, Rounding::kNearest)) {}
  FLASH_SIMT_FROM(float)
  FLASH_SIMT_FROM(double)
  FLASH_SIMT_FROM(short)
  FLASH_SIMT_FROM(unsigned short)
  FLASH_SIMT_FROM(int)
  FLASH_SIMT_FROM(unsigned)
  FLASH_SIMT_FROM(long)
  FLASH_SIMT_FROM(unsigned long)
  FLASH_SIMT_FROM(long long)
  FLASH_SIMT_FROM(unsigned long long)
#undef FLASH_SIMT_FROM
  template <int kOtherBits>
  __forceinline__ explicit Float16(Float16<kOtherBits> other) : Float16(static_cast<float>(other)) {}

  __forceinline__ operator float() const { return float_of_bits<kExponentBits>(bits_); }
  __forceinline__ operator bool() const { return (bits_ & 0x7fff) != 0; }
#define FLASH_SIMT_TO(Integer) \
  __forceinline__ operator Integer() const { return integer_of_double<Integer>(wide(), Rounding::kTowardZero); }
  FLASH_SIMT_TO(char)
  FLASH_SIMT_TO(signed char)
  FLASH_SIMT_TO(unsigned char)
  FLASH_SIMT_TO(short)
  FLASH_SIMT_TO(unsigned short)
  FLASH_SIMT_TO(int)
  FLASH_SIMT_TO(unsigned)
  FLASH_SIMT_TO(long)
  FLASH_SIMT_TO(unsigned long)
  FLASH_SIMT_TO(long long)
  FLASH_SIMT_TO(unsigned long long)
#undef FLASH_SIMT_TO

#define FLASH_SIMT_ARITHMETIC(op, name)                                                  \
  friend Float16 name(Float16 a, Float16 b) { return a.wide() op b.wide(); }             \
  friend Float16 name##_rn(Float16 a, Float16 b) { return a.wide() op b.wide(); }        \
  friend Float16 operator op(Float16 a, Float16 b) { return a.wide() op b.wide(); }      \
  __forceinline__ friend Float16& operator op##=(Float16& a, Float16 b) { return a = a op b; }
  FLASH_SIMT_ARITHMETIC(+, __hadd)
  FLASH_SIMT_ARITHMETIC(-, __hsub)
  FLASH_SIMT_ARITHMETIC(*, __hmul)
#undef FLASH_SIMT_ARITHMETIC
  friend Float16 __hdiv(Float16 a, Float16 b) { return a.wide() / b.wide(); }
  friend Float16 operator/(Float16 a, Float16 b) { return a.wide() / b.wide(); }
  __forceinline__ friend Float16& operator/=(Float16& a, Float16 b) { return a = a / b; }
  friend Float16 __hfma(Float16 a, Float16 b, Float16 c) { return multiply_add_to_odd(a.wide(), b.wide(), c.wide()); }
  friend Float16 __hneg(Float16 a) { return -a.wide(); }
  friend Float16 __habs(Float16 a) { return fabs(a.wide()); }
  friend Float16 operator+(Float16 a) { return a; }
  friend Float16 operator-(Float16 a) { return -a.wide(); }

  // NaN compares false, but for operator !=.
#define FLASH_SIMT_COMPARISON(op, name)                                               \
  friend bool name(Float16 a, Float16 b) { return a.wide() op b.wide(); }             \
  friend bool operator op(Float16 a, Float16 b) { return a.wide() op b.wide(); }
  FLASH_SIMT_COMPARISON(==, __heq)
  FLASH_SIMT_COMPARISON(<, __hlt)
  FLASH_SIMT_COMPARISON(<=, __hle)
  FLASH_SIMT_COMPARISON(>, __hgt)
  FLASH_SIMT_COMPARISON(>=, __hge)
#undef FLASH_SIMT_COMPARISON
  friend bool operator!=(Float16 a, Float16 b) { return a.wide() != b.wide(); }
  friend bool __hneu(Float16 a, Float16 b) { return a.wide() != b.wide(); }
  friend bool __hne(Float16 a, Float16 b) { return a.wide() < b.wide() || a.wide() > b.wide(); }

  friend bool __hisnan(Float16 a) { return a.is_nan(); }
  friend int __hisinf(Float16 a) { return (a.bits_ & 0x7fff) != kInfinity ? 0 : a.bits_ == kInfinity ? 1 : -1; }

  // The lesser and the greater, -0 being less than +0. NaN loses; with _nan, it wins.
  friend Float16 __hmin_nan(Float16 a, Float16 b) { return a.is_nan() || b.is_nan() ? nan() : a.is_below(b) ? a : b; }
  friend Float16 __hmax_nan(Float16 a, Float16 b) { return a.is_nan() || b.is_nan() ? nan() : a.is_below(b) ? b : a; }
  friend Float16 __hmin(Float16 a, Float16 b) { return a.is_nan() ? +b.quiet() : b.is_nan() || a.is_below(b) ? a : b; }
  friend Float16 __hmax(Float16 a, Float16 b) { return a.is_nan() ? +b.quiet() : b.is_nan() || !a.is_below(b) ? a : b; }

#define FLASH_SIMT_FUNCTION(name, expression) \
  friend Float16 name(Float16 a) {            \
    const float x = a;                        \
    return expression;                        \
  }
  FLASH_SIMT_FUNCTION(hsqrt, sqrtf(x))
  FLASH_SIMT_FUNCTION(hrsqrt, 1 / sqrt(double{x}))
  FLASH_SIMT_FUNCTION(hrcp, 1 / double{x})
  FLASH_SIMT_FUNCTION(hexp, expf(x))
  FLASH_SIMT_FUNCTION(hexp2, exp2f(x))
  FLASH_SIMT_FUNCTION(hexp10, pow(10.0, double{x}))
  FLASH_SIMT_FUNCTION(hlog, logf(x))
  FLASH_SIMT_FUNCTION(hlog2, log2f(x))
  FLASH_SIMT_FUNCTION(hlog10, log10f(x))
  FLASH_SIMT_FUNCTION(hsin, sinf(x))
  FLASH_SIMT_FUNCTION(hcos, cosf(x))
  FLASH_SIMT_FUNCTION(htanh, tanhf(x))
  FLASH_SIMT_FUNCTION(htanh_approx, tanhf(x))
  FLASH_SIMT_FUNCTION(hceil, ceilf(x))
  FLASH_SIMT_FUNCTION(hfloor, floorf(x))
  FLASH_SIMT_FUNCTION(htrunc, truncf(x))
  FLASH_SIMT_FUNCTION(hrint, nearbyintf(x))
#undef FLASH_SIMT_FUNCTION

  __forceinline__ friend Float16 atomicAdd(Float16* address, Float16 value) {
    return atomic_update(address, [value](Float16 old) __attribute__((always_inline)) -> Float16 { return old + value; });
  }

 private:
  static constexpr unsigned kInfinity = 0x7fff >> (15 - kExponentBits) << (15 - kExponentBits);

  static Float16 nan() { return from_bits(0x7fff); }
  __forceinline__ double wide() const { return float_of_bits<kExponentBits>(bits_); }
  __forceinline__ bool is_nan() const { return (bits_ & 0x7fff) > kInfinity; }
  __forceinline__ Float16 quiet() const { return is_nan() ? nan() : *this; }
  __forceinline__ bool is_below(Float16 b) const { return order() < b.order(); }
  __forceinline__ int order() const { return (bits_ & 0x8000) != 0 ? ~(bits_ & 0x7fff) : bits_; }

  std::uint16_t bits_;
};

// ---- two in a register -----------------------------------------------------------------------------------------------------------------

// The low half is x, at the lower address.
template <int kExponentBits>
struct alignas(4) Float16Pair {
  using Number = Float16<kExponentBits>;
  Number x, y;

  Float16Pair() = default;
  __forceinline__ Float16Pair(Number low, Number high) : x(low), y(high) {}

#define FLASH_SIMT_BOTH(name, element) \
  friend Float16Pair name(Float16Pair a) { return {element(a.x), element(a.y)}; }
  FLASH_SIMT_BOTH(__hneg2, __hneg)
  FLASH_SIMT_BOTH(__habs2, __habs)
  FLASH_SIMT_BOTH(__hisnan2, __hisnan)
  FLASH_SIMT_BOTH(h2sqrt, hsqrt)
  FLASH_SIMT_BOTH(h2rsqrt, hrsqrt)
  FLASH_SIMT_BOTH(h2rcp, hrcp)
  FLASH_SIMT_BOTH(h2exp, hexp)
  FLASH_SIMT_BOTH(h2exp2, hexp2)
  FLASH_SIMT_BOTH(h2exp10, hexp10)
  FLASH_SIMT_BOTH(h2log, hlog)
  FLASH_SIMT_BOTH(h2log2, hlog2)
  FLASH_SIMT_BOTH(h2log10, hlog10)
  FLASH_SIMT_BOTH(h2sin, hsin)
  FLASH_SIMT_BOTH(h2cos, hcos)
  FLASH_SIMT_BOTH(h2tanh, htanh)
  FLASH_SIMT_BOTH(h2tanh_approx, htanh_approx)
  FLASH_SIMT_BOTH(h2ceil, hceil)
  FLASH_SIMT_BOTH(h2floor, hfloor)
  FLASH_SIMT_BOTH(h2trunc, htrunc)
  FLASH_SIMT_BOTH(h2rint, hrint)
  FLASH_SIMT_BOTH(operator+, +)
  FLASH_SIMT_BOTH(operator-, -)
#undef FLASH_SIMT_BOTH

#define FLASH_SIMT_BOTH(name, element) \
  friend Float16Pair name(Float16Pair a, Float16Pair b) { return {element(a.x, b.x), element(a.y, b.y)}; }
  FLASH_SIMT_BOTH(__hadd2, __hadd)
  FLASH_SIMT_BOTH(__hsub2, __hsub)
  FLASH_SIMT_BOTH(__hmul2, __hmul)
  FLASH_SIMT_BOTH(__hadd2_rn, __hadd)
  FLASH_SIMT_BOTH(__hsub2_rn, __hsub)
  FLASH_SIMT_BOTH(__hmul2_rn, __hmul)
  FLASH_SIMT_BOTH(__h2div, __hdiv)
  FLASH_SIMT_BOTH(__hmax2, __hmax)
  FLASH_SIMT_BOTH(__hmin2, __hmin)
  FLASH_SIMT_BOTH(__hmax2_nan, __hmax_nan)
  FLASH_SIMT_BOTH(__hmin2_nan, __hmin_nan)
  FLASH_SIMT_BOTH(operator+, __hadd)
  FLASH_SIMT_BOTH(operator-, __hsub)
  FLASH_SIMT_BOTH(operator*, __hmul)
  FLASH_SIMT_BOTH(operator/, __hdiv)
  FLASH_SIMT_BOTH(__heq2, __heq)  // 1 or 0 in each half
  FLASH_SIMT_BOTH(__hne2, __hne)
  FLASH_SIMT_BOTH(__hlt2, __hlt)
  FLASH_SIMT_BOTH(__hle2, __hle)
  FLASH_SIMT_BOTH(__hgt2, __hgt)
  FLASH_SIMT_BOTH(__hge2, __hge)
#undef FLASH_SIMT_BOTH
  __forceinline__ friend Float16Pair& operator+=(Float16Pair& a, Float16Pair b) { return a = a + b; }
  __forceinline__ friend Float16Pair& operator-=(Float16Pair& a, Float16Pair b) { return a = a - b; }
  __forceinline__ friend Float16Pair& operator*=(Float16Pair& a, Float16Pair b) { return a = a * b; }
  __forceinline__ friend Float16Pair& operator/=(Float16Pair& a, Float16Pair b) { return a = a / b; }
  friend Float16Pair __hfma2(Float16Pair a, Float16Pair b, Float16Pair c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }

  // True if it holds for both halves; that goes for != as well.
#define FLASH_SIMT_BOTH(name, element) \
  friend bool name(Float16Pair a, Float16Pair b) { return element(a.x, b.x) && element(a.y, b.y); }
  FLASH_SIMT_BOTH(__hbeq2, __heq)
  FLASH_SIMT_BOTH(__hbne2, __hne)
  FLASH_SIMT_BOTH(__hblt2, __hlt)
  FLASH_SIMT_BOTH(__hble2, __hle)
  FLASH_SIMT_BOTH(__hbgt2, __hgt)
  FLASH_SIMT_BOTH(__hbge2, __hge)
  FLASH_SIMT_BOTH(operator==, __heq)
  FLASH_SIMT_BOTH(operator!=, __hneu)
  FLASH_SIMT_BOTH(operator<, __hlt)
  FLASH_SIMT_BOTH(operator<=, __hle)
  FLASH_SIMT_BOTH(operator>, __hgt)
  FLASH_SIMT_BOTH(operator>=, __hge)
#undef FLASH_SIMT_BOTH

  friend float __low2float(Float16Pair a) { return a.x; }
  friend float __high2float(Float16Pair a) { return a.y; }
  friend Float16Pair __lowhigh2highlow(Float16Pair a) { return {a.y, a.x}; }

  // Both halves in one step, more than CUDA promises.
  __forceinline__ friend Float16Pair atomicAdd(Float16Pair* address, Float16Pair value) {
    return atomic_update(address, [value](Float16Pair old) __attribute__((always_inline)) -> Float16Pair { return old + value; });
  }
};

template <int kExponentBits>
struct Shuffled<Float16<kExponentBits>> {
  using type = Float16<kExponentBits>;
};
template <int kExponentBits>
struct Shuffled<Float16Pair<kExponentBits>> {
  using type = Float16Pair<kExponentBits>;
};

}  // namespace flash::simt

// ---- CUDA's names -------------------------------------------------------------------------------------------------------------------------

// The functions whose names contain the type's: `half` stands for half or bfloat16.
#define FLASH_SIMT_FLOAT16_NAMES(half, Number, Pair)                                                                          \
  inline Number __float2##half(float x) { return x; }                                                                         \
  inline Number __float2##half##_rn(float x) { return x; }                                                                    \
  inline Number __float2##half##_rz(float x) { return Number::rounded(x, flash::simt::Rounding::kTowardZero); }               \
  inline Number __float2##half##_rd(float x) { return Number::rounded(x, flash::simt::Rounding::kDown); }                     \
  inline Number __float2##half##_ru(float x) { return Number::rounded(x, flash::simt::Rounding::kUp); }                       \
  inline Number __double2##half(double x) { return x; }                                                                       \
  inline float __##half##2float(Number a) { return a; }                                                                       \
  inline short __##half##_as_short(Number a) { return static_cast<short>(a.bits()); }                                         \
  inline unsigned short __##half##_as_ushort(Number a) { return a.bits(); }                                                   \
  inline Number __short_as_##half(short bits) { return Number::from_bits(static_cast<unsigned short>(bits)); }                \
  inline Number __ushort_as_##half(unsigned short bits) { return Number::from_bits(bits); }                                   \
  FLASH_SIMT_FLOAT16_INTEGER(half, Number, short, short)                                                                      \
  FLASH_SIMT_FLOAT16_INTEGER(half, Number, ushort, unsigned short)                                                            \
  FLASH_SIMT_FLOAT16_INTEGER(half, Number, int, int)                                                                          \
  FLASH_SIMT_FLOAT16_INTEGER(half, Number, uint, unsigned)                                                                    \
  FLASH_SIMT_FLOAT16_INTEGER(half, Number, ll, long long)                                                                     \
  FLASH_SIMT_FLOAT16_INTEGER(half, Number, ull, unsigned long long)                                                           \
  inline Pair make_##half##2(Number low, Number high) { return {low, high}; }                                                 \
  inline Pair __halves2##half##2(Number low, Number high) { return {low, high}; }                                             \
  inline Pair __##half##2##half##2(Number both) { return {both, both}; }                                                      \
  inline Pair __float2##half##2_rn(float both) { return {both, both}; }                                                       \
  inline Pair __floats2##half##2_rn(float low, float high) { return {low, high}; }                                            \
  inline Pair __float22##half##2_rn(float2 x) { return {x.x, x.y}; }                                                          \
  inline float2 __##half##22float2(Pair a) { return {a.x, a.y}; }                                                             \
  inline Number __low2##half(Pair a) { return a.x; }                                                                          \
  inline Number __high2##half(Pair a) { return a.y; }                                                                         \
  inline Pair __low2##half##2(Pair a) { return {a.x, a.x}; }                                                                  \
  inline Pair __high2##half##2(Pair a) { return {a.y, a.y}; }                                                                 \
  inline Pair __lows2##half##2(Pair a, Pair b) { return {a.x, b.x}; }                                                         \
  inline Pair __highs2##half##2(Pair a, Pair b) { return {a.y, b.y}; }

#define FLASH_SIMT_FLOAT16_INTEGER(half, Number, name, Integer)               \
  FLASH_SIMT_FLOAT16_ROUNDING(half, Number, name, Integer, _rn, kNearest)     \
  FLASH_SIMT_FLOAT16_ROUNDING(half, Number, name, Integer, _rz, kTowardZero)  \
  FLASH_SIMT_FLOAT16_ROUNDING(half, Number, name, Integer, _rd, kDown)        \
  FLASH_SIMT_FLOAT16_ROUNDING(half, Number, name, Integer, _ru, kUp)
#define FLASH_SIMT_FLOAT16_ROUNDING(half, Number, name, Integer, suffix, mode)                                                \
  inline Number __##name##2##half##suffix(Integer x) { return Number::rounded(x, flash::simt::Rounding::mode); }              \
  inline Integer __##half##2##name##suffix(Number a) {                                                                        \
    return flash::simt::integer_of_double<Integer>(static_cast<float>(a), flash::simt::Rounding::mode);                       \
  }
