// Hopper's instructions one at a time: the same kernels on a Hopper GPU and on the emulator.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/export.hpp"
#include "common/half.hpp"
#include "common/tensor.hpp"

namespace flash::hopper_kernels {

// One way to compute d (64, n) = c + a (64, k) b (k, n) by wgmma.
struct Way {
  std::string name;
  int n, k;
  std::function<Tensor<float, 2>(const Tensor<float, 2>& a, const Tensor<float, 2>& b,
                                 const Tensor<float, 2>& c)>
      run;
};
FLASH_EXPORT std::vector<Way> ways();

// Boxes of kBoxRows rows.
inline constexpr int kBoxRows = 16;

// The 128 kBoxRows bytes of shared memory that tma_load() fills for the box that begins at (batch,
// head, row, column).
template <class T>
FLASH_EXPORT Tensor<T, 2> loaded(const TensorView<const T, 4>& x, const Shape<4>& place);

// tma_store() of a box (kBoxRows rows of 128 bytes) to a device tensor.
template <class T>
FLASH_EXPORT void stored(const TensorView<T, 4>& x, const Shape<4>& place, const Tensor<T, 2>& box);

}  // namespace flash::hopper_kernels
