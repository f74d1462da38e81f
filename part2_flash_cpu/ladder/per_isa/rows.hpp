// What the kernels of every rung share: small helpers, and the passes over rows before and after
// the backward products.
#pragma once

#include "common/cpu/simd.hpp"
#include "part2_flash_cpu/ladder/per_isa/kernels.hpp"

namespace flash::FLASH_ISA {
namespace {

constexpr double kLog2e = 0x1.71547652b82fep0, kLn2 = 0x1.62e42fefa39efp-1;

FLASH_INLINE Index least(Index a, Index b) { return a < b ? a : b; }
FLASH_INLINE Index most(Index a, Index b) { return a > b ? a : b; }
FLASH_INLINE Index round_up(Index x, Index to) { return (x + to - 1) / to * to; }

template <class T>
FLASH_INLINE T infinity() {
  return static_cast<T>(__builtin_inf());
}

template <class T>
FLASH_INLINE HeadRows<T> from_row(HeadRows<T> x, Index row) {
  return {x.data + row * x.row, x.row};
}

template <class T>
Index width(Index head_dim) {
  return round_up(head_dim, kLanes<T>);
}

template <class T>
void clear(T* x, Index size) {
  for (Index i = 0; i < size; ++i) x[i] = 0;
}

// lse2 and delta: BackwardRows says what they are.
template <class T>
void backward_rows(const BackwardRows<T>& x) {
  for (Index i = x.first_query; i < x.last_query; ++i) {
    const T *const out = x.out.data + i * x.out.row, *const d_out = x.d_out.data + i * x.d_out.row;
    Vector<T> sums{};
    Index c = 0;
    for (; c + kLanes<T> <= x.head_dim; c += kLanes<T>) sums += load(out + c) * load(d_out + c);
    T delta = 0;
    for (; c < x.head_dim; ++c) delta += out[c] * d_out[c];
    FLASH_UNROLL
    for (int lane = 0; lane < kLanes<T>; ++lane) delta += sums[lane];
    x.delta[i] = delta;
    const T lse = x.lse[i * x.lse_step];
    const bool sees_none = lse == -infinity<T>();  // 2^(s - inf) = 0: it weighs no key
    x.lse2[i] = sees_none ? infinity<T>() : static_cast<T>(lse * kLog2e);
    x.lse2_rest[i] = sees_none ? T{0} : static_cast<T>(__builtin_fma(lse, kLog2e, -x.lse2[i]));
  }
}

// d_q from the splits' shares: BackwardSum says how.
template <class T>
void backward_sum(const BackwardSum<T>& x) {
  const Index wide = width<T>(x.head_dim);
  const T scale = static_cast<T>(x.scale);
  for (Index i = x.first_query; i < x.last_query; ++i) {
    const T* const share = x.shares + i * wide;
    T* const d_q = x.d_q.data + i * x.d_q.row;
    for (Index c = 0; c < wide; c += kLanes<T>) {
      Vector<T> sum = load(share + c);
      for (Index s = 1; s < x.splits; ++s) sum += load(share + s * x.step + c);
      sum *= scale;
      if (c + kLanes<T> <= x.head_dim) {
        store(d_q + c, sum);
      } else {
        for (Index lane = 0; c + lane < x.head_dim; ++lane) d_q[c + lane] = sum[lane];
      }
    }
  }
}

}  // namespace
}  // namespace flash::FLASH_ISA
