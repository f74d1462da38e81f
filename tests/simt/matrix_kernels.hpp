// Products of small matrices by every way that a warp has: the same kernels on the GPU and on the
// emulator.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/export.hpp"
#include "common/tensor.hpp"

namespace flash::matrix_kernels {

// One way to multiply a (m, k) by b (k, n) with float accumulators that start as c (m, n).
struct Way {
  std::string name;
  int m, n, k;
  int fraction_bits;  // of the elements' type: 10 for half and tf32, 7 for bfloat16
  std::function<Tensor<float, 2>(const Tensor<float, 2>& a, const Tensor<float, 2>& b,
                                 const Tensor<float, 2>& c)>
      run;
};

FLASH_EXPORT std::vector<Way> ways();

}  // namespace flash::matrix_kernels
