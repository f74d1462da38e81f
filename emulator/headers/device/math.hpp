// Device functions beyond the C library's: fast-math intrinsics, rounding modes, bits. The
// approximate ones are computed as CUDA defines them (__expf(x) is exp2 of x log2(e), rounded in
// between), with the host's functions underneath.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bit>
#include <cmath>
#include <limits>

// ---- minimum and maximum ------------------------------------------------------------------------

#define FLASH_SIMT_MIN_MAX(T)                      \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
FLASH_SIMT_MIN_MAX(int)
FLASH_SIMT_MIN_MAX(unsigned)
FLASH_SIMT_MIN_MAX(long)
FLASH_SIMT_MIN_MAX(unsigned long)
FLASH_SIMT_MIN_MAX(long long)
FLASH_SIMT_MIN_MAX(unsigned long long)
#undef FLASH_SIMT_MIN_MAX
inline unsigned min(int a, unsigned b) { return min(static_cast<unsigned>(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, static_cast<unsigned>(b)); }
inline unsigned max(int a, unsigned b) { return max(static_cast<unsigned>(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, static_cast<unsigned>(b)); }
inline float min(float a, float b) { return fminf(a, b); }  // NaN loses
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

// ---- float --------------------------------------------------------------------------------------

inline float __exp2f(float x) { return exp2f(x); }
inline float __expf(float x) { return exp2f(x * 1.4426950408889634f); }
inline float __log2f(float x) { return log2f(x); }
inline float __logf(float x) { return log2f(x) * 0.6931471805599453f; }
inline float __powf(float x, float y) { return exp2f(y * log2f(x)); }
inline float __fdividef(float x, float y) {
  return fabsf(y) > 0x1p126f && !isinf(x) ? 0 * x / y : x / y;
}
inline float __exp10f(float x) { return exp2f(x * 3.3219280948873623f); }
inline float __log10f(float x) { return log2f(x) * 0.3010299956639812f; }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return sinf(x) / cosf(x); }
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = sinf(x);
  *cosine = cosf(x);
}
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }  // NaN gives 0
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) {
  volatile float product = a * b;  // never contracted with an addition
  return product;
}
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1 / sqrt(static_cast<double>(x))); }

// ---- conversions --------------------------------------------------------------------------------

namespace flash::simt {
// As PTX has it: NaN gives 0 if both types have 32 bits, otherwise the bit of the sign alone.
template <class Integer, class Number>
Integer saturated(Number value) {
  static_assert(!__is_class(Number) && !__is_union(Number) && !__is_enum(Number),
                "only numbers are converted");
  using Limits = std::numeric_limits<Integer>;
  if (value != value)
    return sizeof(Number) + sizeof(Integer) <= 8 ? 0 : Integer{1} << (8 * sizeof(Integer) - 1);
  const double wide = value;
  return wide >= static_cast<double>(Limits::max())   ? Limits::max()
         : wide <= static_cast<double>(Limits::min()) ? Limits::min()
                                                      : static_cast<Integer>(wide);
}
}  // namespace flash::simt

#define FLASH_SIMT_TO_INTEGER(name, Number, Integer)                                            \
  inline Integer name##_rn(Number x) { return flash::simt::saturated<Integer>(std::rint(x)); }  \
  inline Integer name##_rz(Number x) { return flash::simt::saturated<Integer>(std::trunc(x)); } \
  inline Integer name##_rd(Number x) { return flash::simt::saturated<Integer>(std::floor(x)); } \
  inline Integer name##_ru(Number x) { return flash::simt::saturated<Integer>(std::ceil(x)); }
FLASH_SIMT_TO_INTEGER(__float2int, float, int)
FLASH_SIMT_TO_INTEGER(__float2uint, float, unsigned)
FLASH_SIMT_TO_INTEGER(__float2ll, float, long long)
FLASH_SIMT_TO_INTEGER(__float2ull, float, unsigned long long)
FLASH_SIMT_TO_INTEGER(__double2int, double, int)
FLASH_SIMT_TO_INTEGER(__double2uint, double, unsigned)
FLASH_SIMT_TO_INTEGER(__double2ll, double, long long)
FLASH_SIMT_TO_INTEGER(__double2ull, double, unsigned long long)
#undef FLASH_SIMT_TO_INTEGER
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }

// ---- bits ---------------------------------------------------------------------------------------

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1) << (31 - bit);
  return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}
// Byte i of the result is byte (selector >> 4 i) & 7 of the eight of x and y.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 32; i += 8)
    result |= static_cast<unsigned>(both >> 8 * (selector >> i / 2 & 7) & 0xff) << i;
  return result;
}
// Of the 64 bits high:low, shifted by the lowest 5 bits of a number, or (c) by at most 32.
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return by >= 32 ? low : static_cast<unsigned>(both << by >> 32);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return by >= 32 ? high : static_cast<unsigned>(both >> by);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return __funnelshift_lc(low, high, by & 31);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return __funnelshift_rc(low, high, by & 31);
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return max(a, b) - min(a, b) + c; }
inline unsigned __sad(int a, int b, unsigned c) {
  return static_cast<unsigned>(max(a, b)) - static_cast<unsigned>(min(a, b)) + c;
}
inline int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }

// ---- loads and stores with a cache hint (ignored) -----------------------------------------------

// Inlined, so that the place of the access is in the kernel.

#define FLASH_SIMT_LOAD(name)                \
  template <class T>                         \
  __forceinline__ T name(const T* address) { \
    return *address;                         \
  }
FLASH_SIMT_LOAD(__ldg)
FLASH_SIMT_LOAD(__ldca)
FLASH_SIMT_LOAD(__ldcg)
FLASH_SIMT_LOAD(__ldcv)
FLASH_SIMT_LOAD(__ldcs)
#undef FLASH_SIMT_LOAD
#define FLASH_SIMT_STORE(name)                     \
  template <class T>                               \
  __forceinline__ void name(T* address, T value) { \
    *address = value;                              \
  }
FLASH_SIMT_STORE(__stwb)
FLASH_SIMT_STORE(__stcg)
FLASH_SIMT_STORE(__stwt)
FLASH_SIMT_STORE(__stcs)
#undef FLASH_SIMT_STORE
