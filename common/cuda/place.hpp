// Which of the values that neighbouring lanes share are whose.
//
// kLanes lanes share kLanes * N consecutive values. A lane has N of them, in vectors of up to 4
// neighbours, and the lanes' vectors lie side by side. Lanes that read at the same time read 16
// bytes each, and together one piece of memory without gaps.
#pragma once

#include "common/tensor.hpp"

namespace flash {

template <int N>
constexpr int kVector = N < 4 ? N : 4;

// Where value number n of `lane` lies.
template <int N, int kLanes>
FLASH_HOST_DEVICE constexpr int place(int lane, int n) {
  return n / kVector<N> * kLanes * kVector<N> + lane * kVector<N> + n % kVector<N>;
}

}  // namespace flash
