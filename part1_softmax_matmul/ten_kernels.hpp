// Contract of the ten small kernels of cuda.md. Kernel `number` reads the n floats of x and writes
// y, both contiguous in device memory:
//
//   1   y[i] = 2 x[i]            n is a multiple of 128
//   2   y[i] = x[i] + 1          any n
//   3   y[i] = x[i] x[i]         any n, with 4 blocks of 128 threads
//   4   each 128 elements of x in the reverse order
//   5   y[b] = the sum of x's elements 128 b to 128 b + 127
//   6   y[b] = the sum of x's elements 32 b to 32 b + 31
//   7   y[i] = -x[i]             n is a multiple of 1024: tiles of 32 rows and 32 columns
//   8   y = the transpose of x, 32 rows and 32 columns
//   9   y[r] = the sum of row r of x, which has as many rows as y has elements
//   10  y[i] = 3 x[i]            n is a multiple of 4
#pragma once

#include "common/task.hpp"
#include "common/tensor.hpp"

namespace flash {

// Throws ArgumentError unless `number` is from 1 to 10.
void run_small_kernel(int number, TensorView<const float, 1> x, TensorView<float, 1> y);

struct TenKernelsTask {
  static constexpr char kId[] = "part1.ten_kernels";
  decltype(&flash::run_small_kernel) run_small_kernel = flash::run_small_kernel;
};

}  // namespace flash
