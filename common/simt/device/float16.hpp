// What half and bfloat16 have in common: all but the number of exponent bits and the names of some
// functions. Values are computed in double and rounded once. A double has 53 bits, more than twice
// the 11 or 8 of the result plus 2, so that for + - * / and sqrt the intermediate rounding does not
// show. Functions that the GPU approximates (hexp, ...) are the host's here.
//
// Most functions are friends, found through the type of an argument. Arguments are values, and
// members are always inlined, so that they stay in registers, where a checked build has nothing to
// check.
#pragma once

#include <math.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/simt/device/atomics.hpp"
#include "common/simt/device/rounding.hpp"
#include "common/simt/device/warp.hpp"
#include "common/simt/include/cuda_runtime_api.h"  // first: __forceinline__

namespace flash::simt {

// ---- bits ---------------------------------------------------------------------------------------

// A float or a double, rounded to 16 bits. NaN becomes 0x7fff, as on the GPU.
template <int kExponentBits, class Value>
std::uint16_t rounded_bits(Value value, Rounding rounding) {
  using Limits = std::numeric_limits<Value>;
  using Bits = std::conditional_t<sizeof(Value) == 4, std::uint32_t, std::uint64_t>;
  constexpr int width = 8 * sizeof(Bits), value_digits = Limits::digits - 1,
                digits = 15 - kExponentBits;
  // Of the value's exponent bias over the result's.
  constexpr int excess = Limits::max_exponent - (1 << (kExponentBits - 1));
  constexpr Bits sign = Bits{1} << (width - 1), half = sign;
  constexpr unsigned infinity = 0x7fff >> digits << digits;

  const Bits bits = std::bit_cast<Bits>(value), magnitude = bits & ~sign;
  const bool negative = (bits & sign) != 0;
  if (magnitude > std::bit_cast<Bits>(Limits::infinity())) return 0x7fff;
  if (magnitude == std::bit_cast<Bits>(Limits::infinity()))
    return static_cast<std::uint16_t>((negative ? 0x8000u : 0u) | infinity);

  // Exponent and digits are one number, so that a carry out of the digits increments the exponent.
  Bits number = magnitude - (Bits{excess} << value_digits);
  int dropped = value_digits - digits;
  if (excess > 0 && magnitude < Bits{excess + 1} << value_digits) {  // subnormal or zero
    const int exponent = static_cast<int>(magnitude >> value_digits);
    number = magnitude - (Bits(exponent) << value_digits) + (Bits{exponent != 0} << value_digits);
    dropped += excess + 1 - (exponent != 0 ? exponent : 1);
    if (dropped > value_digits + 2) dropped = value_digits + 2;  // all of it, and less than half
  }
  Bits kept = number >> dropped,
       rest = number << (width - dropped);  // rest: as a fraction of 1 << width
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
  return static_cast<std::uint16_t>((negative ? 0x8000u : 0u) |
                                    (static_cast<unsigned>(kept) + away));
}

// The float that 16 bits stand for: always exact. A half that is NaN becomes 0x7fffffff, as on the
// GPU.
template <int kExponentBits>
float float_of_bits(std::uint16_t bits) {
  constexpr int digits = 15 - kExponentBits, excess = 128 - (1 << (kExponentBits - 1));
  if constexpr (excess == 0) return std::bit_cast<float>(std::uint32_t{bits} << 16);
  constexpr unsigned infinity = 0x7fff >> digits << digits;
  const unsigned sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= infinity)
    return std::bit_cast<float>(magnitude > infinity ? 0x7fffffffu : sign | 0x7f800000u);
  // The multiplication corrects the exponent, and makes subnormal numbers normal.
  return std::bit_cast<float>(sign | magnitude << (23 - digits)) *
         std::bit_cast<float>((127u + excess) << 23);
}

// An integer as a double. If it does not fit, the last bit says whether something was lost, which
// is all that rounding needs.
template <class Integer>
double double_of_integer(Integer value) {
  if constexpr (sizeof value < 8) return value;
  const bool negative = value < 0;
  std::uint64_t magnitude = static_cast<std::uint64_t>(value);
  if (negative) magnitude = 0 - magnitude;
  if (magnitude >> 53 != 0) magnitude = (magnitude >> 11 | ((magnitude & 0x7ff) != 0)) << 11;
  return negative ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
}

// a b + c for factors of up to 26 bits, rounded to odd: the last bit of an inexact result is 1, so
// that a second rounding comes out right. The error of the addition is Knuth's two-sum.
inline double multiply_add_to_odd(double a, double b, double c) {
  const double product = a * b, sum = product + c, part = sum - product;
  const double error = (product - (sum - part)) + (c - part);
  std::int64_t bits = std::bit_cast<std::int64_t>(sum);
  if ((error < 0 || error > 0) && (bits & 1) == 0) bits += (error > 0) == (sum > 0) ? 1 : -1;
  return std::bit_cast<double>(bits);
}

// hsqrt() and its like: APPLY(name, value for a float x).
#define FLASH_SIMT_FUNCTIONS(APPLY)  \
  APPLY(sqrt, sqrtf(x))              \
  APPLY(rsqrt, 1 / sqrt(double{x}))  \
  APPLY(rcp, 1 / double{x})          \
  APPLY(exp, expf(x))                \
  APPLY(exp2, exp2f(x))              \
  APPLY(exp10, pow(10.0, double{x})) \
  APPLY(log, logf(x))                \
  APPLY(log2, log2f(x))              \
  APPLY(log10, log10f(x))            \
  APPLY(sin, sinf(x))                \
  APPLY(cos, cosf(x))                \
  APPLY(tanh, tanhf(x))              \
  APPLY(tanh_approx, tanhf(x))       \
  APPLY(ceil, ceilf(x))              \
  APPLY(floor, floorf(x))            \
  APPLY(trunc, truncf(x))            \
  APPLY(rint, nearbyintf(x))

// ---- one number ---------------------------------------------------------------------------------

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

  // Implicit, from and to the same types as in CUDA: what is ambiguous there (h + 1.f, h < 0) is
  // ambiguous here.
#define FLASH_SIMT_INTEGERS(APPLY) \
  APPLY(short)                     \
  APPLY(unsigned short)            \
  APPLY(int)                       \
  APPLY(unsigned)                  \
  APPLY(long)                      \
  APPLY(unsigned long)             \
  APPLY(long long)                 \
  APPLY(unsigned long long)
#define FLASH_SIMT_FROM(Value) \
  __forceinline__ Float16(Value value) : Float16(rounded(value, Rounding::kNearest)) {}
  FLASH_SIMT_FROM(float)
  FLASH_SIMT_FROM(double)
  FLASH_SIMT_INTEGERS(FLASH_SIMT_FROM)
#undef FLASH_SIMT_FROM
  template <int kOtherBits>
  __forceinline__ explicit Float16(Float16<kOtherBits> other)
      : Float16(static_cast<float>(other)) {}

  __forceinline__ operator float() const { return float_of_bits<kExponentBits>(bits_); }
  __forceinline__ operator bool() const { return (bits_ & 0x7fff) != 0; }
#define FLASH_SIMT_TO(Integer)                                        \
  __forceinline__ operator Integer() const {                          \
    return integer_of_double<Integer>(wide(), Rounding::kTowardZero); \
  }
  FLASH_SIMT_TO(char)
  FLASH_SIMT_TO(signed char)
  FLASH_SIMT_TO(unsigned char)
  FLASH_SIMT_INTEGERS(FLASH_SIMT_TO)
#undef FLASH_SIMT_INTEGERS
#undef FLASH_SIMT_TO

#define FLASH_SIMT_ARITHMETIC(op, name)                                             \
  friend Float16 name(Float16 a, Float16 b) { return a.wide() op b.wide(); }        \
  friend Float16 name##_rn(Float16 a, Float16 b) { return a.wide() op b.wide(); }   \
  friend Float16 operator op(Float16 a, Float16 b) { return a.wide() op b.wide(); } \
  __forceinline__ friend Float16& operator op##=(Float16& a, Float16 b) { return a = a op b; }
  FLASH_SIMT_ARITHMETIC(+, __hadd)
  FLASH_SIMT_ARITHMETIC(-, __hsub)
  FLASH_SIMT_ARITHMETIC(*, __hmul)
#undef FLASH_SIMT_ARITHMETIC
  friend Float16 __hdiv(Float16 a, Float16 b) { return a.wide() / b.wide(); }
  friend Float16 operator/(Float16 a, Float16 b) { return a.wide() / b.wide(); }
  __forceinline__ friend Float16& operator/=(Float16& a, Float16 b) { return a = a / b; }
  friend Float16 __hfma(Float16 a, Float16 b, Float16 c) {
    return multiply_add_to_odd(a.wide(), b.wide(), c.wide());
  }
  friend Float16 __hneg(Float16 a) { return -a.wide(); }
  friend Float16 __habs(Float16 a) { return fabs(a.wide()); }
  friend Float16 operator+(Float16 a) { return a; }
  friend Float16 operator-(Float16 a) { return -a.wide(); }

  // With NaN only operator != is true.
#define FLASH_SIMT_COMPARISON(op, name)                                   \
  friend bool name(Float16 a, Float16 b) { return a.wide() op b.wide(); } \
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
  friend int __hisinf(Float16 a) {
    return (a.bits_ & 0x7fff) != kInfinity ? 0 : a.bits_ == kInfinity ? 1 : -1;
  }

  // Minimum and maximum, where -0 is less than +0. The result is NaN if both numbers are; with
  // _nan, if one of them is.
  friend Float16 __hmin_nan(Float16 a, Float16 b) {
    return a.is_nan() || b.is_nan() ? nan() : a.is_below(b) ? a : b;
  }
  friend Float16 __hmax_nan(Float16 a, Float16 b) {
    return a.is_nan() || b.is_nan() ? nan() : a.is_below(b) ? b : a;
  }
  friend Float16 __hmin(Float16 a, Float16 b) {
    return a.is_nan() ? +b.quiet() : b.is_nan() || a.is_below(b) ? a : b;
  }
  friend Float16 __hmax(Float16 a, Float16 b) {
    return a.is_nan() ? +b.quiet() : b.is_nan() || !a.is_below(b) ? a : b;
  }

#define FLASH_SIMT_FUNCTION(name, expression) \
  friend Float16 h##name(Float16 a) {         \
    const float x = a;                        \
    return expression;                        \
  }
  FLASH_SIMT_FUNCTIONS(FLASH_SIMT_FUNCTION)
#undef FLASH_SIMT_FUNCTION

  __forceinline__ friend Float16 atomicAdd(Float16* address, Float16 value) {
    return atomic_update(
        address, [value](Float16 old) __attribute__((always_inline))->Float16 {
          return old + value;
        });
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

// ---- two in a register --------------------------------------------------------------------------

// The low half is x, at the lower address.
template <int kExponentBits>
struct alignas(4) Float16Pair {
  using Number = Float16<kExponentBits>;
  Number x, y;

  Float16Pair() = default;
  __forceinline__ Float16Pair(Number low, Number high) : x(low), y(high) {}

#define FLASH_SIMT_BOTH(name, element) \
  friend Float16Pair name(Float16Pair a) { return {element(a.x), element(a.y)}; }
#define FLASH_SIMT_FUNCTION(name, expression) FLASH_SIMT_BOTH(h2##name, h##name)
  FLASH_SIMT_FUNCTIONS(FLASH_SIMT_FUNCTION)
  FLASH_SIMT_BOTH(__hneg2, __hneg)
  FLASH_SIMT_BOTH(__habs2, __habs)
  FLASH_SIMT_BOTH(__hisnan2, __hisnan)
  FLASH_SIMT_BOTH(operator+, +)
  FLASH_SIMT_BOTH(operator-, -)
#undef FLASH_SIMT_FUNCTION
#undef FLASH_SIMT_FUNCTIONS
#undef FLASH_SIMT_BOTH

#define FLASH_SIMT_BOTH(name, element)                    \
  friend Float16Pair name(Float16Pair a, Float16Pair b) { \
    return {element(a.x, b.x), element(a.y, b.y)};        \
  }
#define FLASH_SIMT_COMPOUND(op)                                                       \
  __forceinline__ friend Float16Pair& operator op##=(Float16Pair& a, Float16Pair b) { \
    return a = a op b;                                                                \
  }
#define FLASH_SIMT_ARITHMETIC(op, name) \
  FLASH_SIMT_BOTH(name##2, name)        \
  FLASH_SIMT_BOTH(name##2_rn, name)     \
  FLASH_SIMT_BOTH(operator op, name)    \
  FLASH_SIMT_COMPOUND(op)
  FLASH_SIMT_ARITHMETIC(+, __hadd)
  FLASH_SIMT_ARITHMETIC(-, __hsub)
  FLASH_SIMT_ARITHMETIC(*, __hmul)
#undef FLASH_SIMT_ARITHMETIC
  FLASH_SIMT_BOTH(__h2div, __hdiv)
  FLASH_SIMT_BOTH(operator/, __hdiv)
  FLASH_SIMT_BOTH(__hmax2, __hmax)
  FLASH_SIMT_BOTH(__hmin2, __hmin)
  FLASH_SIMT_BOTH(__hmax2_nan, __hmax_nan)
  FLASH_SIMT_BOTH(__hmin2_nan, __hmin_nan)
  FLASH_SIMT_COMPOUND(/)
#undef FLASH_SIMT_COMPOUND
  friend Float16Pair __hfma2(Float16Pair a, Float16Pair b, Float16Pair c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
  }

  // __heq2() and its like give 1 or 0 in each half; __hbeq2() and the operators, != too, are true
  // if both halves are.
#define FLASH_SIMT_BOTH_HOLD(name, element) \
  friend bool name(Float16Pair a, Float16Pair b) { return element(a.x, b.x) && element(a.y, b.y); }
#define FLASH_SIMT_COMPARISON(op, name, operator_element) \
  FLASH_SIMT_BOTH(__h##name##2, __h##name)                \
  FLASH_SIMT_BOTH_HOLD(__hb##name##2, __h##name)          \
  FLASH_SIMT_BOTH_HOLD(operator op, operator_element)
  FLASH_SIMT_COMPARISON(==, eq, __heq)
  FLASH_SIMT_COMPARISON(!=, ne, __hneu)
  FLASH_SIMT_COMPARISON(<, lt, __hlt)
  FLASH_SIMT_COMPARISON(<=, le, __hle)
  FLASH_SIMT_COMPARISON(>, gt, __hgt)
  FLASH_SIMT_COMPARISON(>=, ge, __hge)
#undef FLASH_SIMT_COMPARISON
#undef FLASH_SIMT_BOTH_HOLD
#undef FLASH_SIMT_BOTH

  friend float __low2float(Float16Pair a) { return a.x; }
  friend float __high2float(Float16Pair a) { return a.y; }
  friend Float16Pair __lowhigh2highlow(Float16Pair a) { return {a.y, a.x}; }

  // Both halves at once, which is more than CUDA promises.
  __forceinline__ friend Float16Pair atomicAdd(Float16Pair* address, Float16Pair value) {
    return atomic_update(
        address, [value](Float16Pair old) __attribute__((always_inline))->Float16Pair {
          return old + value;
        });
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
