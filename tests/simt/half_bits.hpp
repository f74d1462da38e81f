// CUDA's functions on half and bfloat16 as functions on bits, each beside what it has to return.
//
// NVIDIA's types and the emulator's have the same names, hence two files, nvidia_half.cpp and
// emulated_half.cpp: each includes its own headers and gets its tables from half_functions.inc.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace half_bits {

using Bits = std::uint16_t;
using Long = long double;

enum class Mode { kNearest, kTowardZero, kDown, kUp };

template <class Function, class Want>
struct Named {
  const char* name;
  Function* apply;
  Want want;
};

// An exact result (Long) is still to be rounded to 16 bits.
struct Table {
  std::vector<Named<Bits(float), Mode>> from_float;
  std::vector<Named<Bits(double), Mode>> from_double;
  struct Cast {
    Mode mode;
    Long (*to_argument)(long long);  // a cast to the type that the function takes
  };
  std::vector<Named<Bits(long long), Cast>> from_integer;
  std::vector<Named<std::uint64_t(Bits), std::uint64_t (*)(Bits, Long)>>
      to_others;  // to the bits of another type
  std::vector<Named<Bits(Bits), Long (*)(Long)>> unary;
  std::vector<Named<Bits(Bits, Bits), Long (*)(Long, Long)>> binary;
  std::vector<Named<Bits(Bits, Bits), bool (*)(Long, Long)>> comparisons;
  using Pairs = std::uint32_t(std::uint32_t, std::uint32_t);
  std::vector<Named<Pairs, Pairs*>> pairs;  // want: by the functions of one number
};

namespace nvidia {
Table half();
Table bfloat16();
}  // namespace nvidia

namespace emulated {
Table half();
Table bfloat16();
}  // namespace emulated

// ---- what functions return, by the definition ---------------------------------------------------

template <class Integer>
std::uint64_t saturated(Long x) {
  using Limits = std::numeric_limits<Integer>;
  if (x != x) return sizeof(Integer) < 8 ? 0 : std::uint64_t{1} << 63;
  const Integer result = x >= static_cast<Long>(Limits::max())   ? Limits::max()
                         : x <= static_cast<Long>(Limits::min()) ? Limits::min()
                                                                 : static_cast<Integer>(x);
  return static_cast<std::uint64_t>(result);
}

inline bool is_below(Long x, Long y) {
  return x < y || (x == y && std::signbit(x) && !std::signbit(y));
}
inline Long least_or_nan(Long x, Long y) {
  return x != x || y != y ? x + y : is_below(x, y) ? x : y;
}
inline Long greatest_or_nan(Long x, Long y) {
  return x != x || y != y ? x + y : is_below(x, y) ? y : x;
}
inline Long least(Long x, Long y) { return x != x ? y : y != y ? x : least_or_nan(x, y); }
inline Long greatest(Long x, Long y) { return x != x ? y : y != y ? x : greatest_or_nan(x, y); }

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

std::uint32_t joined(half_bits::Bits low, half_bits::Bits high) {
  return low | std::uint32_t{high} << 16;
}

}  // namespace

#define FORMAT half
#define NAME(before, after) before##half##after
#define BOTH_HALVES __half2half2
#define DIRECTIONS 1
#define FLOAT_OF_NAN 0x7fffffffu
#include "half_functions.inc"
#undef FORMAT
#undef NAME
#undef BOTH_HALVES
#undef DIRECTIONS
#undef FLOAT_OF_NAN

#define FORMAT bfloat16
#define NAME(before, after) before##bfloat16##after
#define BOTH_HALVES __bfloat162bfloat162
#define DIRECTIONS 0  // NVIDIA has them for GPUs only
#define FLOAT_OF_NAN (std::uint32_t{bits} << 16)
#include "half_functions.inc"
#endif
