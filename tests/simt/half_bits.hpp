// CUDA's functions on half and bfloat16 as functions on bits, so that two implementations of them can be compared.
//
// The types of both have the same names, hence two files, nvidia_half.cpp and emulated_half.cpp. Each includes its own headers,
// defines FLASH_HALF_BITS as what it is, and gets the functions below from here.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace half_bits {

using Bits = std::uint16_t;

template <class Function>
struct Named {
  const char* name;
  Function* apply;
};

struct Table {
  std::span<const Named<Bits(float)>> from_float;
  std::span<const Named<Bits(double)>> from_double;
  std::span<const Named<Bits(long long)>> from_integer;
  std::span<const Named<std::uint64_t(Bits)>> unary;  // to bits of whatever the result is
  std::span<const Named<Bits(Bits, Bits)>> binary;
  std::span<const Named<std::uint32_t(std::uint32_t, std::uint32_t)>> pairs;  // some of them use the first argument only
};

namespace nvidia {
Table half();
Table bfloat16();
}  // namespace nvidia

namespace emulated {
Table half();
Table bfloat16();
}  // namespace emulated

}  // namespace half_bits

#ifdef FLASH_HALF_BITS
namespace {

template <class To, class From>
To copied(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(static_cast<void*>(&to), &from, sizeof to);
  return to;
}

#define FLASH_FROM_INTEGERS(mode, half)                                                                                 \
  {"int2_" #mode, [](long long x) { return copied<Bits>(__int2##half##_##mode(static_cast<int>(x))); }},           \
  {"uint2_" #mode, [](long long x) { return copied<Bits>(__uint2##half##_##mode(static_cast<unsigned>(x))); }},    \
  {"short2_" #mode, [](long long x) { return copied<Bits>(__short2##half##_##mode(static_cast<short>(x))); }},     \
  {"ushort2_" #mode, [](long long x) { return copied<Bits>(__ushort2##half##_##mode(static_cast<unsigned short>(x))); }}, \
  {"ll2_" #mode, [](long long x) { return copied<Bits>(__ll2##half##_##mode(x)); }},                               \
  {"ull2_" #mode, [](long long x) { return copied<Bits>(__ull2##half##_##mode(static_cast<unsigned long long>(x))); }}

// On the host NVIDIA's bfloat16 has no others.
#define FLASH_FROM_INTEGERS_bfloat16 FLASH_FROM_INTEGERS(rn, bfloat16)
#define FLASH_FROM_INTEGERS_half                                                                \
  FLASH_FROM_INTEGERS(rn, half), FLASH_FROM_INTEGERS(rz, half), FLASH_FROM_INTEGERS(rd, half),  \
      FLASH_FROM_INTEGERS(ru, half)

#define FLASH_UNARY(name, expression)                      \
  {name, [](Bits bits) {                                   \
     const Number a = copied<Number>(bits);                \
     return static_cast<std::uint64_t>(expression);        \
   }}
#define FLASH_BINARY(name, expression)                                        \
  {name, [](Bits x, Bits y) {                                                 \
     const Number a = copied<Number>(x), b = copied<Number>(y);               \
     const Number result = expression;                                        \
     return copied<Bits>(result);                                             \
   }}
#define FLASH_ASSIGNMENT(op)                                                  \
  {#op, [](Bits x, Bits y) {                                                  \
     Number a = copied<Number>(x);                                            \
     a op copied<Number>(y);                                                  \
     return copied<Bits>(a);                                                  \
   }}
#define FLASH_TRUTH(name, expression)                                         \
  {name, [](Bits x, Bits y) {                                                 \
     const Number a = copied<Number>(x), b = copied<Number>(y);               \
     return Bits{expression};                                                 \
   }}
#define FLASH_PAIR(name, expression)                                          \
  {name, []([[maybe_unused]] std::uint32_t x, [[maybe_unused]] std::uint32_t y) { \
     [[maybe_unused]] const Pair a = copied<Pair>(x), b = copied<Pair>(y);    \
     const Pair result = expression;                                          \
     return copied<std::uint32_t>(result);                                    \
   }}
#define FLASH_PAIR_TRUTH(name, expression)                                    \
  {name, [](std::uint32_t x, std::uint32_t y) {                               \
     const Pair a = copied<Pair>(x), b = copied<Pair>(y);                     \
     return std::uint32_t{expression};                                        \
   }}
#define FLASH_BOTH(name) FLASH_PAIR(#name, name(a, b))
#define FLASH_OPERATOR(op) FLASH_PAIR("pair " #op, a op b)

#define FLASH_TABLE(half, Type)                                                                                              \
  Table half() {                                                                                                             \
    using Number = Type;                                                                                                     \
    using Pair = Type##2;                                                                                                    \
    static const Named<Bits(float)> from_float[] = {                                                                         \
        {"float2", [](float x) { return copied<Bits>(__float2##half(x)); }},                                                 \
        {"float2_rn", [](float x) { return copied<Bits>(__float2##half##_rn(x)); }},                                         \
        {"float2_rz", [](float x) { return copied<Bits>(__float2##half##_rz(x)); }},                                         \
        {"float2_rd", [](float x) { return copied<Bits>(__float2##half##_rd(x)); }},                                         \
        {"float2_ru", [](float x) { return copied<Bits>(__float2##half##_ru(x)); }},                                         \
        {"of float", [](float x) { return copied<Bits>(Number(x)); }},                                                       \
    };                                                                                                                       \
    static const Named<Bits(double)> from_double[] = {                                                                       \
        {"double2", [](double x) { return copied<Bits>(__double2##half(x)); }},                                              \
        {"of double", [](double x) { return copied<Bits>(Number(x)); }},                                                     \
    };                                                                                                                       \
    static const Named<Bits(long long)> from_integer[] = {                                                                   \
        FLASH_FROM_INTEGERS_##half,                                                                                          \
        {"of int", [](long long x) { return copied<Bits>(Number(static_cast<int>(x))); }},                                   \
        {"of unsigned", [](long long x) { return copied<Bits>(Number(static_cast<unsigned>(x))); }},                         \
        {"of short", [](long long x) { return copied<Bits>(Number(static_cast<short>(x))); }},                               \
        {"of unsigned short", [](long long x) { return copied<Bits>(Number(static_cast<unsigned short>(x))); }},             \
        {"of long", [](long long x) { return copied<Bits>(Number(static_cast<long>(x))); }},                                 \
        {"of unsigned long", [](long long x) { return copied<Bits>(Number(static_cast<unsigned long>(x))); }},               \
        {"of long long", [](long long x) { return copied<Bits>(Number(x)); }},                                               \
    };                                                                                                                       \
    static const Named<std::uint64_t(Bits)> unary[] = {                                                                      \
        FLASH_UNARY("2float", copied<std::uint32_t>(__##half##2float(a))),                                                   \
        FLASH_UNARY("float", copied<std::uint32_t>(static_cast<float>(a))),                                                  \
        FLASH_UNARY("bool", static_cast<bool>(a)),                                                                           \
        FLASH_UNARY("char", static_cast<char>(a)),                                                                           \
        FLASH_UNARY("signed char", static_cast<signed char>(a)),                                                             \
        FLASH_UNARY("unsigned char", static_cast<unsigned char>(a)),                                                         \
        FLASH_UNARY("short", static_cast<short>(a)),                                                                         \
        FLASH_UNARY("unsigned short", static_cast<unsigned short>(a)),                                                       \
        FLASH_UNARY("int", static_cast<int>(a)),                                                                             \
        FLASH_UNARY("unsigned", static_cast<unsigned>(a)),                                                                   \
        FLASH_UNARY("long", static_cast<long>(a)),                                                                           \
        FLASH_UNARY("unsigned long", static_cast<unsigned long>(a)),                                                         \
        FLASH_UNARY("long long", static_cast<long long>(a)),                                                                 \
        FLASH_UNARY("unsigned long long", static_cast<unsigned long long>(a)),                                               \
        FLASH_UNARY("2short_rz", __##half##2short_rz(a)),                                                                    \
        FLASH_UNARY("2ushort_rz", __##half##2ushort_rz(a)),                                                                  \
        FLASH_UNARY("2int_rz", __##half##2int_rz(a)),                                                                        \
        FLASH_UNARY("2uint_rz", __##half##2uint_rz(a)),                                                                      \
        FLASH_UNARY("2ll_rz", __##half##2ll_rz(a)),                                                                          \
        FLASH_UNARY("2ull_rz", __##half##2ull_rz(a)),                                                                        \
        FLASH_UNARY("as_short", __##half##_as_short(a)),                                                                     \
        FLASH_UNARY("as_ushort", __##half##_as_ushort(a)),                                                                   \
        FLASH_UNARY("short_as", copied<Bits>(__short_as_##half(static_cast<short>(copied<Bits>(a))))),                       \
        FLASH_UNARY("ushort_as", copied<Bits>(__ushort_as_##half(copied<Bits>(a)))),                                         \
        FLASH_UNARY("__hneg", copied<Bits>(__hneg(a))),                                                                      \
        FLASH_UNARY("-", copied<Bits>(-a)),                                                                                  \
        FLASH_UNARY("+", copied<Bits>(+a)),                                                                                  \
        FLASH_UNARY("__habs", copied<Bits>(__habs(a))),                                                                      \
        FLASH_UNARY("__hisnan", __hisnan(a)),                                                                                \
        FLASH_UNARY("__hisinf", __hisinf(a)),                                                                                \
        FLASH_UNARY("both", copied<std::uint32_t>(__##half##2##half##2(a))),                                                 \
    };                                                                                                                       \
    static const Named<Bits(Bits, Bits)> binary[] = {                                                                        \
        FLASH_BINARY("+", a + b),                                                                                            \
        FLASH_BINARY("-", a - b),                                                                                            \
        FLASH_BINARY("*", a * b),                                                                                            \
        FLASH_BINARY("/", a / b),                                                                                            \
        FLASH_BINARY("__hadd", __hadd(a, b)),                                                                                \
        FLASH_BINARY("__hsub", __hsub(a, b)),                                                                                \
        FLASH_BINARY("__hmul", __hmul(a, b)),                                                                                \
        FLASH_BINARY("__hadd_rn", __hadd_rn(a, b)),                                                                          \
        FLASH_BINARY("__hsub_rn", __hsub_rn(a, b)),                                                                          \
        FLASH_BINARY("__hmul_rn", __hmul_rn(a, b)),                                                                          \
        FLASH_BINARY("__hdiv", __hdiv(a, b)),                                                                                \
        FLASH_BINARY("__hmax", __hmax(a, b)),                                                                                \
        FLASH_BINARY("__hmin", __hmin(a, b)),                                                                                \
        FLASH_BINARY("__hmax_nan", __hmax_nan(a, b)),                                                                        \
        FLASH_BINARY("__hmin_nan", __hmin_nan(a, b)),                                                                        \
        FLASH_ASSIGNMENT(+=),                                                                                                \
        FLASH_ASSIGNMENT(-=),                                                                                                \
        FLASH_ASSIGNMENT(*=),                                                                                                \
        FLASH_ASSIGNMENT(/=),                                                                                                \
        FLASH_TRUTH("==", a == b),                                                                                           \
        FLASH_TRUTH("!=", a != b),                                                                                           \
        FLASH_TRUTH("<", a < b),                                                                                             \
        FLASH_TRUTH("<=", a <= b),                                                                                           \
        FLASH_TRUTH(">", a > b),                                                                                             \
        FLASH_TRUTH(">=", a >= b),                                                                                           \
        FLASH_TRUTH("__heq", __heq(a, b)),                                                                                   \
        FLASH_TRUTH("__hne", __hne(a, b)),                                                                                   \
        FLASH_TRUTH("__hneu", __hneu(a, b)),                                                                                 \
        FLASH_TRUTH("__hlt", __hlt(a, b)),                                                                                   \
        FLASH_TRUTH("__hle", __hle(a, b)),                                                                                   \
        FLASH_TRUTH("__hgt", __hgt(a, b)),                                                                                   \
        FLASH_TRUTH("__hge", __hge(a, b)),                                                                                   \
    };                                                                                                                       \
    static const Named<std::uint32_t(std::uint32_t, std::uint32_t)> pairs[] = {                                              \
        FLASH_BOTH(__hadd2),                                                                                                 \
        FLASH_BOTH(__hsub2),                                                                                                 \
        FLASH_BOTH(__hmul2),                                                                                                 \
        FLASH_BOTH(__hadd2_rn),                                                                                              \
        FLASH_BOTH(__hsub2_rn),                                                                                              \
        FLASH_BOTH(__hmul2_rn),                                                                                              \
        FLASH_BOTH(__h2div),                                                                                                 \
        FLASH_BOTH(__hmax2),                                                                                                 \
        FLASH_BOTH(__hmin2),                                                                                                 \
        FLASH_BOTH(__hmax2_nan),                                                                                             \
        FLASH_BOTH(__hmin2_nan),                                                                                             \
        FLASH_BOTH(__heq2),                                                                                                  \
        FLASH_BOTH(__hne2),                                                                                                  \
        FLASH_BOTH(__hlt2),                                                                                                  \
        FLASH_BOTH(__hle2),                                                                                                  \
        FLASH_BOTH(__hgt2),                                                                                                  \
        FLASH_BOTH(__hge2),                                                                                                  \
        FLASH_BOTH(__lows2##half##2),                                                                                        \
        FLASH_BOTH(__highs2##half##2),                                                                                       \
        FLASH_OPERATOR(+),                                                                                                   \
        FLASH_OPERATOR(-),                                                                                                   \
        FLASH_OPERATOR(*),                                                                                                   \
        FLASH_OPERATOR(/),                                                                                                   \
        FLASH_PAIR("pair unary -", -a),                                                                                      \
        FLASH_PAIR("__hneg2", __hneg2(a)),                                                                                   \
        FLASH_PAIR("__habs2", __habs2(a)),                                                                                   \
        FLASH_PAIR("__hisnan2", __hisnan2(a)),                                                                               \
        FLASH_PAIR("__lowhigh2highlow", __lowhigh2highlow(a)),                                                               \
        FLASH_PAIR("low2pair", __low2##half##2(a)),                                                                          \
        FLASH_PAIR("high2pair", __high2##half##2(a)),                                                                        \
        FLASH_PAIR("halves2", __halves2##half##2(__low2##half(a), __high2##half(b))),                                        \
        FLASH_PAIR("make", make_##half##2(a.x, b.y)),                                                                        \
        FLASH_PAIR("floats2", __floats2##half##2_rn(__low2float(a), __high2float(b))),                                       \
        FLASH_PAIR("float2pair", __float2##half##2_rn(copied<float>(x))),                                                    \
        FLASH_PAIR("float22", __float22##half##2_rn(float2{copied<float>(x), copied<float>(y)})),                            \
        FLASH_PAIR("22float2", __floats2##half##2_rn(__##half##22float2(a).x, __##half##22float2(a).y)),                     \
        FLASH_PAIR_TRUTH("__hbeq2", __hbeq2(a, b)),                                                                          \
        FLASH_PAIR_TRUTH("__hbne2", __hbne2(a, b)),                                                                          \
        FLASH_PAIR_TRUTH("__hblt2", __hblt2(a, b)),                                                                          \
        FLASH_PAIR_TRUTH("__hble2", __hble2(a, b)),                                                                          \
        FLASH_PAIR_TRUTH("__hbgt2", __hbgt2(a, b)),                                                                          \
        FLASH_PAIR_TRUTH("__hbge2", __hbge2(a, b)),                                                                          \
        FLASH_PAIR_TRUTH("pair ==", a == b),                                                                                 \
        FLASH_PAIR_TRUTH("pair !=", a != b),                                                                                 \
        FLASH_PAIR_TRUTH("pair <", a < b),                                                                                   \
        FLASH_PAIR_TRUTH("pair >=", a >= b),                                                                                 \
    };                                                                                                                       \
    return {from_float, from_double, from_integer, unary, binary, pairs};                                                    \
  }

}  // namespace

namespace half_bits::FLASH_HALF_BITS {
FLASH_TABLE(half, __half)
FLASH_TABLE(bfloat16, __nv_bfloat16)
}  // namespace half_bits::FLASH_HALF_BITS
#endif
