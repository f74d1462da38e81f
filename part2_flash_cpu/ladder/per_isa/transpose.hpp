// Transposes a matrix in memory, a square of vectors at a time: n rows of n lanes are loaded,
// exchanged in log2(n) rounds of n shuffles, and stored, where a copy element by element takes a
// load and a store for each.
#pragma once

#include <utility>

#include "common/cpu/simd.hpp"
#include "part2_flash_cpu/ladder/per_isa/kernels.hpp"

namespace flash::FLASH_ISA {
namespace {

// Lanes of a and b, by their numbers; those of b are counted on from a's.
template <int... kFrom, class V>
FLASH_INLINE V pick(V a, V b) {
#if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, kFrom...);
#else  // g++ 11
  return __builtin_shuffle(a, b, decltype(a < b){kFrom...});
#endif
}

// The lanes of top and bottom whose number has the bit kHalf clear (kUpper false) or set, side by
// side: of the 2 x 2 blocks A B (top) and C D (bottom), each kHalf lanes wide, A C or B D.
template <int kHalf, bool kUpper, class V, int... kLane>
FLASH_INLINE V blocks(V top, V bottom, std::integer_sequence<int, kLane...>) {
  constexpr int kN = sizeof...(kLane);
  if constexpr (kUpper) {
    return pick<((kLane & kHalf) ? kN + kLane : kLane + kHalf)...>(top, bottom);
  } else {
    return pick<((kLane & kHalf) ? kN + kLane - kHalf : kLane)...>(top, bottom);
  }
}

template <int kHalf, class T>
FLASH_INLINE void transpose_square(Vector<T> (&x)[kLanes<T>]) {
  constexpr auto kAll = std::make_integer_sequence<int, kLanes<T>>();
  FLASH_UNROLL
  for (int i = 0; i < kLanes<T>; ++i) {
    if (i & kHalf) continue;
    const Vector<T> top = x[i], bottom = x[i + kHalf];
    x[i] = blocks<kHalf, false>(top, bottom, kAll);
    x[i + kHalf] = blocks<kHalf, true>(top, bottom, kAll);
  }
  if constexpr (kHalf > 1) transpose_square<kHalf / 2, T>(x);
}

// to(c, r) = factor * from(r, c) for `rows` rows of `columns` columns.
template <class T>
void transpose(HeadRows<const T> from, Index rows, Index columns, T factor, HeadRows<T> to) {
  constexpr int kN = kLanes<T>;
  Index r = 0;
  for (; r + kN <= rows; r += kN) {
    Index c = 0;
    for (; c + kN <= columns; c += kN) {
      Vector<T> x[kN];
      FLASH_UNROLL
      for (int i = 0; i < kN; ++i) x[i] = load(from.data + (r + i) * from.row + c) * factor;
      transpose_square<kN / 2, T>(x);
      FLASH_UNROLL
      for (int i = 0; i < kN; ++i) store(to.data + (c + i) * to.row + r, x[i]);
    }
    for (; c < columns; ++c)
      for (int i = 0; i < kN; ++i)
        to.data[c * to.row + r + i] = from.data[(r + i) * from.row + c] * factor;
  }
  for (; r < rows; ++r)
    for (Index c = 0; c < columns; ++c)
      to.data[c * to.row + r] = from.data[r * from.row + c] * factor;
}

}  // namespace
}  // namespace flash::FLASH_ISA
