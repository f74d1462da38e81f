// What half and bfloat16 have in common: all but the number of exponent bits and the names of some
// functions. Values are computed in float and rounded to 16 bits (common/half.hpp): for + - * / and
// sqrt the rounding in between does not show. Functions that the GPU approximates (hexp, ...) are
// the host's here.
//
// Most functions are friends, found through the type of an argument. Arguments are values, and
// members are always inlined, so that they stay in registers, where a checked build has nothing to
// check.
#pragma once

#include <math.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "emulator/headers/cuda_runtime_api.h"  // first: __forceinline__
#include "emulator/headers/device/atomics.hpp"
#include "emulator/headers/device/warp.hpp"

namespace flash::simt {

// hsqrt(), h2sqrt() and their like: APPLY(name, value for a float x).
#define FLASH_SIMT_FUNCTIONS(APPLY) \
  APPLY(sqrt, sqrtf(x))             \
  APPLY(rsqrt, 1 / sqrtf(x))        \
  APPLY(rcp, 1 / x)                 \
  APPLY(exp, expf(x))               \
  APPLY(exp2, exp2f(x))             \
  APPLY(log, logf(x))               \
  APPLY(log2, log2f(x))

#define FLASH_SIMT_ARITHMETIC(APPLY) \
  APPLY(+, __hadd)                   \
  APPLY(-, __hsub)                   \
  APPLY(*, __hmul)                   \
  APPLY(/, __hdiv)

// a + b. If digits are lost, the last one is 1, so that the result is rounded to fewer digits as
// the exact sum is.
inline double sum_to_odd(double a, double b) {
  const double sum = a + b, of_a = sum - b, lost = a - of_a + (b - (sum - of_a));
  const auto bits = std::bit_cast<std::int64_t>(sum);
  if (!std::isfinite(sum) || lost == 0 || bits % 2 != 0) return sum;
  return std::bit_cast<double>(bits + ((lost > 0) == (sum > 0) ? 1 : -1));
}

template <int kExponentBits>
class Float16 {
 public:
  Float16() = default;  // trivial: a __shared__ array of them has no initialiser

  static Float16 from_bits(std::uint16_t bits) {
    Float16 result;
    result.bits_ = bits;
    return result;
  }
  __forceinline__ std::uint16_t bits() const { return bits_; }

  // Implicit, as in CUDA: what is ambiguous there (h + 1.f, h < 0) is ambiguous here.
  template <class Value>
  requires std::is_arithmetic_v<Value> __forceinline__ Float16(Value value)
      : bits_(bits_of_float16(static_cast<double>(value), kExponentBits)) {}
  template <int kOtherBits>
  __forceinline__ explicit Float16(Float16<kOtherBits> other)
      : Float16(static_cast<float>(other)) {}
  __forceinline__ operator float() const { return float_of_float16(bits_, kExponentBits); }

#define FLASH_SIMT_APPLY(op, name)                                                  \
  friend Float16 name(Float16 a, Float16 b) { return float{a} op float{b}; }        \
  friend Float16 operator op(Float16 a, Float16 b) { return float{a} op float{b}; } \
  __forceinline__ friend Float16& operator op##=(Float16& a, Float16 b) { return a = a op b; }
  FLASH_SIMT_ARITHMETIC(FLASH_SIMT_APPLY)
#undef FLASH_SIMT_APPLY
#define FLASH_SIMT_STEP(op)                                                   \
  friend Float16& operator op##op(Float16& a) { return a = a op Float16(1); } \
  friend Float16 operator op##op(Float16& a, int) {                           \
    const Float16 before = a;                                                 \
    op##op a;                                                                 \
    return before;                                                            \
  }
  FLASH_SIMT_STEP(+)
  FLASH_SIMT_STEP(-)
#undef FLASH_SIMT_STEP
  friend Float16 __hfma(Float16 a, Float16 b, Float16 c) {
    return sum_to_odd(double{float{a}} * double{float{b}}, double{float{c}});
  }
  friend Float16 __hneg(Float16 a) { return -float{a}; }
  friend Float16 __habs(Float16 a) { return fabsf(a); }
  friend Float16 operator-(Float16 a) { return -float{a}; }
  // NaN loses, and -0 is below 0.
  friend Float16 __hmin(Float16 a, Float16 b) {
    return __hisnan(a) || b < a || (a == b && (b.bits_ & 0x8000) != 0) ? b : a;
  }
  friend Float16 __hmax(Float16 a, Float16 b) {
    return __hisnan(a) || a < b || (a == b && (a.bits_ & 0x8000) != 0) ? b : a;
  }
  // Ambiguous in CUDA.
  friend void min(Float16, Float16) = delete;
  friend void max(Float16, Float16) = delete;

#define FLASH_SIMT_COMPARISON(op, name)                                   \
  friend bool name(Float16 a, Float16 b) { return float{a} op float{b}; } \
  friend bool operator op(Float16 a, Float16 b) { return float{a} op float{b}; }
  FLASH_SIMT_COMPARISON(==, __heq)
  FLASH_SIMT_COMPARISON(<, __hlt)
  FLASH_SIMT_COMPARISON(<=, __hle)
  FLASH_SIMT_COMPARISON(>, __hgt)
  FLASH_SIMT_COMPARISON(>=, __hge)
#undef FLASH_SIMT_COMPARISON
  friend bool __hisnan(Float16 a) { return isnan(float{a}); }

#define FLASH_SIMT_FUNCTION(name, expression) \
  friend Float16 h##name(Float16 a) {         \
    const float x = a;                        \
    return expression;                        \
  }
  FLASH_SIMT_FUNCTIONS(FLASH_SIMT_FUNCTION)
#undef FLASH_SIMT_FUNCTION

  __forceinline__ friend Float16 atomicAdd(Float16* address, Float16 value) {
    return flash_simt_atomic_update(
        address, [value](Float16 old) __attribute__((always_inline))->Float16 {
          return old + value;
        });
  }

 private:
  std::uint16_t bits_;
};

// Two in a register. The low half is x, at the lower address.
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
  FLASH_SIMT_BOTH(operator-, -)
#undef FLASH_SIMT_FUNCTION
#undef FLASH_SIMT_BOTH

#define FLASH_SIMT_BOTH(name, element)                    \
  friend Float16Pair name(Float16Pair a, Float16Pair b) { \
    return {element(a.x, b.x), element(a.y, b.y)};        \
  }
#define FLASH_SIMT_APPLY(op, name)                                                    \
  FLASH_SIMT_BOTH(operator op, name)                                                  \
  __forceinline__ friend Float16Pair& operator op##=(Float16Pair& a, Float16Pair b) { \
    return a = a op b;                                                                \
  }
  FLASH_SIMT_ARITHMETIC(FLASH_SIMT_APPLY)
  FLASH_SIMT_BOTH(__hadd2, __hadd)
  FLASH_SIMT_BOTH(__hsub2, __hsub)
  FLASH_SIMT_BOTH(__hmul2, __hmul)
  FLASH_SIMT_BOTH(__h2div, __hdiv)
  FLASH_SIMT_BOTH(__hmax2, __hmax)
  FLASH_SIMT_BOTH(__hmin2, __hmin)
#undef FLASH_SIMT_APPLY
#undef FLASH_SIMT_BOTH
  friend Float16Pair __hfma2(Float16Pair a, Float16Pair b, Float16Pair c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
  }
  friend bool operator==(Float16Pair a, Float16Pair b) { return a.x == b.x && a.y == b.y; }

  friend float __low2float(Float16Pair a) { return a.x; }
  friend float __high2float(Float16Pair a) { return a.y; }

  // Both halves at once, which is more than CUDA promises.
  __forceinline__ friend Float16Pair atomicAdd(Float16Pair* address, Float16Pair value) {
    return flash_simt_atomic_update(
        address, [value](Float16Pair old) __attribute__((always_inline))->Float16Pair {
          return old + value;
        });
  }
};
#undef FLASH_SIMT_FUNCTIONS
#undef FLASH_SIMT_ARITHMETIC

template <int kExponentBits>
struct Shuffled<Float16<kExponentBits>> {
  using type = Float16<kExponentBits>;
};
template <int kExponentBits>
struct Shuffled<Float16Pair<kExponentBits>> {
  using type = Float16Pair<kExponentBits>;
};

}  // namespace flash::simt

// The functions whose names contain the type's: NAME(a, b) is a##half##b or a##bfloat16##b.
#define FLASH_SIMT_FLOAT16_NAMES(NAME, Number, Pair)                                          \
  inline Number NAME(__float2, )(float x) { return x; }                                       \
  inline Number NAME(__float2, _rn)(float x) { return x; }                                    \
  inline float NAME(__, 2float)(Number a) { return a; }                                       \
  inline Number NAME(__int2, _rn)(int x) { return static_cast<double>(x); }                   \
  inline unsigned short NAME(__, _as_ushort)(Number a) { return a.bits(); }                   \
  inline Number NAME(__ushort_as_, )(unsigned short bits) { return Number::from_bits(bits); } \
  inline Pair NAME(make_, 2)(Number low, Number high) { return {low, high}; }                 \
  inline Pair NAME(__halves2, 2)(Number low, Number high) { return {low, high}; }             \
  inline Pair NAME(__float2, 2_rn)(float both) { return {both, both}; }                       \
  inline Pair NAME(__floats2, 2_rn)(float low, float high) { return {low, high}; }            \
  inline Pair NAME(__float22, 2_rn)(float2 x) { return {x.x, x.y}; }                          \
  inline float2 NAME(__, 22float2)(Pair a) { return {a.x, a.y}; }                             \
  inline Number NAME(__low2, )(Pair a) { return a.x; }                                        \
  inline Number NAME(__high2, )(Pair a) { return a.y; }                                       \
  inline Pair NAME(__low2, 2)(Pair a) { return {a.x, a.x}; }                                  \
  inline Pair NAME(__high2, 2)(Pair a) { return {a.y, a.y}; }
