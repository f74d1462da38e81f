// The micro-kernel: a tile of a matrix product whose accumulators stay in registers.
//
//   C(m, n) = sum over s of A(m, s) * B(s, n)        m < M rows, n < N vectors, s < steps
//
// A is read one number at a time, so that it may lie in memory as it is or transposed: rows of K,
// or columns of V. B is read a vector at a time. M * N accumulators, N vectors of B and one number
// of A have to fit in the registers; each number of A then serves N multiply-adds and each vector
// of B serves M. 8 x 3 with 32 registers: 24 multiply-adds take 12 cycles, and 11 loads fit beside
// them.
#pragma once

#include "common/cpu/simd.hpp"

namespace flash::FLASH_ISA {

// How the numbers of A lie in memory. Either the steps of a row are neighbours, and rows are
// `stride` apart; or the rows of a step are neighbours, and steps are `stride` apart.
enum class Along { kSteps, kRows };

template <class T>
struct Numbers {
  const T* data;
  Index stride;
};

// A distance that the compiler knows.
template <Index kValue>
struct Constant {
  FLASH_INLINE operator Index() const { return kValue; }
};

// Calls finish(m, n, sum) for each accumulator at the end. An accumulator starts from 0, also when
// finish() adds it to an earlier product: several short sums lose fewer digits than one long sum.
// Rows of B are `b_step` apart, an Index or a Constant.
template <int M, int N, Along kAlong, class T, class Step, class Finish>
FLASH_INLINE void tile_product(Numbers<T> a, const T* b, Step b_step, Index steps,
                               Finish&& finish) {
  static_assert(M * N + N + 1 <= kRegisters);
  Vector<T> sum[M][N]{};
  // With a pointer for each row, the compiler runs out of registers for them: one for every fourth.
  constexpr int kPointers = kAlong == Along::kSteps ? (M + 3) / 4 : 1;
  const T* from[kPointers];
  FLASH_UNROLL
  for (int m = 0; m < kPointers; ++m) from[m] = a.data + 4 * m * a.stride;

  for (Index s = 0; s < steps; ++s) {
    Vector<T> b_row[N];
    FLASH_UNROLL
    for (int n = 0; n < N; ++n) b_row[n] = load(b + n * kLanes<T>);
    FLASH_UNROLL
    for (int m = 0; m < M; ++m) {
      const T weight = kAlong == Along::kSteps ? from[m / 4][m % 4 * a.stride] : from[0][m];
      FLASH_UNROLL
      for (int n = 0; n < N; ++n) sum[m][n] += weight * b_row[n];
    }
    FLASH_UNROLL
    for (int m = 0; m < kPointers; ++m) from[m] += kAlong == Along::kSteps ? 1 : a.stride;
    b += b_step;
  }
  FLASH_UNROLL
  for (int m = 0; m < M; ++m) {
    FLASH_UNROLL
    for (int n = 0; n < N; ++n) finish(m, n, sum[m][n]);
  }
}

// The same for rows [begin, end) of C: tiles of M rows, then of fewer for the rest. finish gets the
// row's number in all of C. Not inlined: in a larger function the compiler would keep the pointers
// of the inner loop in memory.
template <int M, int N, Along kAlong, class T, class Step, class Finish>
[[gnu::noinline]] void rows_product(Index begin, Index end, Numbers<T> a, const T* b, Step b_step,
                                    Index steps, Finish finish) {
  const Index row = kAlong == Along::kSteps ? a.stride : 1;
  Index r = begin;
  for (; r + M <= end; r += M)
    tile_product<M, N, kAlong, T>(
        {a.data + r * row, a.stride}, b, b_step,
        steps, [&](int m, int n, Vector<T> sum) __attribute__((always_inline)) {
          finish(r + m, n, sum);
        });
  if constexpr (M > 1) {
    if (r < end)
      rows_product<(M > 4 ? M / 2 : 1), N, kAlong, T>(r, end, a, b, b_step, steps, finish);
  }
}

}  // namespace flash::FLASH_ISA
