// Shuffles, votes and reductions of a warp. Each lane passes a slot on its own stack; the
// last lane fills in the results of all. The checks do not look at the slots: a kernel cannot
// access another lane's stack.
#pragma once

#include <type_traits>

#include "emulator/headers/device/kernel_interface.hpp"

namespace flash::simt {

// By the compiler's own words: a file may specialise what the standard library says of its types.
template <class T>
inline constexpr bool is_number =
    !__is_class(T) && !__is_union(T) && !__is_enum(T) && std::is_arithmetic_v<T>;

template <class T>
struct Exchange {
  static_assert(__is_trivially_copyable(T) && __is_trivially_constructible(T, T&) &&
                    __is_trivially_constructible(T, const T&) &&
                    __is_trivially_constructible(T, T&&) && sizeof(T) <= 32,
                "lanes exchange trivially copyable values of up to 32 bytes");
  T value;
  int source;  // the lane that this one reads
  T result;
  bool must_be_there;
  const char* name;
  Site site;
};

// A value from a lane that takes no part is undefined in CUDA. Reductions by __shfl_down_sync()
// read such values without using them: there it is all ones, which is NaN and shows if it is used
// after all. Elsewhere it is a finding.
template <class T>
FLASH_SIMT_UNCHECKED void exchange(void* const slots[32], std::uint32_t present) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((present >> lane & 1) == 0) continue;
    auto* const mine = static_cast<Exchange<T>*>(slots[lane]);
    if (present >> mine->source & 1) {
      const auto* const other = static_cast<const Exchange<T>*>(slots[mine->source]);
      __builtin_memcpy(__builtin_addressof(mine->result), __builtin_addressof(other->value),
                       sizeof(T));
    } else if (mine->must_be_there) {
      read_from_absent_lane(mine->name, mine->site, lane, mine->source);
    } else {
      __builtin_memset(static_cast<void*>(__builtin_addressof(mine->result)), 0xff, sizeof(T));
    }
  }
}

template <class T>
T shuffle(const char* name, std::uint32_t mask, T value, int source, bool must_be_there,
          Site site) {
  Exchange<T> slot{value, source, value, must_be_there, name, site};
  flash_simt_warp_operation({name, site, mask, &slot, exchange<T>});
  return slot.result;
}

// Operations of reductions, under the names of cooperative groups.
#define FLASH_SIMT_OPERATION(name, expression)                                         \
  template <class T>                                                                   \
  struct name {                                                                        \
    __attribute__((always_inline)) T operator()(T a, T b) const { return expression; } \
  };
FLASH_SIMT_OPERATION(plus, a + b)
FLASH_SIMT_OPERATION(less, b < a ? b : a)     // the smaller one
FLASH_SIMT_OPERATION(greater, a < b ? b : a)  // the larger one
FLASH_SIMT_OPERATION(bit_and, a& b)
FLASH_SIMT_OPERATION(bit_or, a | b)
FLASH_SIMT_OPERATION(bit_xor, a ^ b)
#undef FLASH_SIMT_OPERATION

// Combines the lanes' values; each lane gets the result.
template <class T>
struct Combination {
  T value, result;
};

template <class T, class Operation>
FLASH_SIMT_UNCHECKED void combine_lanes(void* const slots[32], std::uint32_t present) {
  bool first = true;
  T result{};
  for (int lane = 0; lane < 32; ++lane)
    if (present >> lane & 1) {
      const T value = static_cast<const Combination<T>*>(slots[lane])->value;
      result = first ? value : Operation()(result, value);
      first = false;
    }
  for (int lane = 0; lane < 32; ++lane)
    if (present >> lane & 1) static_cast<Combination<T>*>(slots[lane])->result = result;
}

template <template <class> class Operation, class T>
T reduce_lanes(const char* name, std::uint32_t mask, T value, Site site) {
  static_assert(is_number<T>);  // no code of a kernel's own type runs unchecked
  Combination<T> slot{value, value};
  flash_simt_warp_operation({name, site, mask, &slot, combine_lanes<T, Operation<T>>});
  return slot.result;
}

struct Match {
  std::uint64_t value;
  std::uint32_t lanes;
};
FLASH_SIMT_UNCHECKED inline void match_lanes(void* const slots[32], std::uint32_t present) {
  for (int lane = 0; lane < 32; ++lane)
    for (int other = 0; other < 32; ++other)
      if ((present >> lane & present >> other & 1) != 0 &&
          static_cast<const Match*>(slots[lane])->value ==
              static_cast<const Match*>(slots[other])->value)
        static_cast<Match*>(slots[lane])->lanes |= 1u << other;
}
template <class T>
std::uint32_t lanes_with_same(const char* name, std::uint32_t mask, T value, Site site) {
  static_assert(is_number<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "lanes compare numbers of 32 and 64 bits");
  Match slot{0, 0};
  __builtin_memcpy(&slot.value, &value, sizeof value);
  flash_simt_warp_operation({name, site, mask, &slot, match_lanes});
  return slot.lanes;
}

// The lanes of a warp form groups of `width`, and a lane reads within its group.
inline int first_of_group(int lane, int width) { return lane & ~(width - 1); }

template <class T>
T shuffle_from(std::uint32_t mask, T value, int source, int width, Site site) {
  const int lane = static_cast<int>(lane_number());
  return shuffle("__shfl_sync", mask, value, first_of_group(lane, width) | (source & (width - 1)),
                 true, site);
}
template <class T>
T shuffle_up(std::uint32_t mask, T value, unsigned distance, int width, Site site) {
  const int lane = static_cast<int>(lane_number()), source = lane - static_cast<int>(distance & 31);
  return shuffle("__shfl_up_sync", mask, value,
                 source < first_of_group(lane, width) ? lane : source, false, site);
}
template <class T>
T shuffle_down(std::uint32_t mask, T value, unsigned distance, int width, Site site) {
  const int lane = static_cast<int>(lane_number()), source = lane + static_cast<int>(distance & 31);
  return shuffle("__shfl_down_sync", mask, value,
                 source >= first_of_group(lane, width) + width ? lane : source, false, site);
}
template <class T>
T shuffle_xor(std::uint32_t mask, T value, int lanes, int width, Site site) {
  const int lane = static_cast<int>(lane_number()), source = (lane ^ lanes) & 31;
  return shuffle("__shfl_xor_sync", mask, value,
                 source >= first_of_group(lane, width) + width ? lane : source, true, site);
}

// The types of CUDA's __shfl_*_sync(): int, unsigned, long, long long, float, double, and half and
// bfloat16, alone and in pairs (float16.hpp). Smaller integers become int.
template <class T>
struct Shuffled {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8,
                "CUDA has no __shfl_*_sync() for this type: it has them for integers, float, "
                "double, half and bfloat16");
  using type = std::conditional_t<std::is_integral_v<T> && (sizeof(T) < sizeof(int)), int, T>;
};

namespace intrinsics {

#define FLASH_SIMT_SHUFFLE(name, function, Which)                                               \
  template <class T>                                                                            \
  auto name(unsigned mask, T value, Which which, int width = 32, Site site = Site::here()) {    \
    if (width < 1 || width > 32 || (width & (width - 1)) != 0) wrong_width(#name, site, width); \
    return function<typename Shuffled<T>::type>(mask, value, which, width, site);               \
  }
FLASH_SIMT_SHUFFLE(__shfl_sync, shuffle_from, int)
FLASH_SIMT_SHUFFLE(__shfl_up_sync, shuffle_up, unsigned)
FLASH_SIMT_SHUFFLE(__shfl_down_sync, shuffle_down, unsigned)
FLASH_SIMT_SHUFFLE(__shfl_xor_sync, shuffle_xor, int)
#undef FLASH_SIMT_SHUFFLE

inline unsigned __ballot_sync(unsigned mask, int predicate, Site site = Site::here()) {
  const unsigned bit = predicate != 0 ? 1u << lane_number() : 0;
  return reduce_lanes<bit_or>("__ballot_sync", mask, bit, site);
}
inline int __all_sync(unsigned mask, int predicate, Site site = Site::here()) {
  return reduce_lanes<bit_and>("__all_sync", mask, static_cast<int>(predicate != 0), site);
}
inline int __any_sync(unsigned mask, int predicate, Site site = Site::here()) {
  return reduce_lanes<bit_or>("__any_sync", mask, static_cast<int>(predicate != 0), site);
}
#define FLASH_SIMT_REDUCE(name, operation, T)                       \
  inline T name(unsigned mask, T value, Site site = Site::here()) { \
    return reduce_lanes<operation>(#name, mask, value, site);       \
  }
FLASH_SIMT_REDUCE(__reduce_add_sync, plus, unsigned)
FLASH_SIMT_REDUCE(__reduce_add_sync, plus, int)
FLASH_SIMT_REDUCE(__reduce_min_sync, less, unsigned)
FLASH_SIMT_REDUCE(__reduce_min_sync, less, int)
FLASH_SIMT_REDUCE(__reduce_max_sync, greater, unsigned)
FLASH_SIMT_REDUCE(__reduce_max_sync, greater, int)
FLASH_SIMT_REDUCE(__reduce_and_sync, bit_and, unsigned)
FLASH_SIMT_REDUCE(__reduce_or_sync, bit_or, unsigned)
FLASH_SIMT_REDUCE(__reduce_xor_sync, bit_xor, unsigned)
#undef FLASH_SIMT_REDUCE

// The lanes of the mask that have the same value.
template <class T>
unsigned __match_any_sync(unsigned mask, T value, Site site = Site::here()) {
  static_assert(is_number<T>, "lanes compare numbers of 32 and 64 bits");
  return lanes_with_same("__match_any_sync", mask, +value, site);
}
// The mask, and *all = 1, if all of its lanes have the same value; else 0, and *all = 0.
template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* all, Site site = Site::here()) {
  static_assert(is_number<T>, "lanes compare numbers of 32 and 64 bits");
  const unsigned same = lanes_with_same("__match_all_sync", mask, +value, site);
  *all = same == mask;
  return *all != 0 ? same : 0;
}

}  // namespace intrinsics
}  // namespace flash::simt

using namespace flash::simt::intrinsics;
