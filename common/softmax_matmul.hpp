// The problem of part 1, softmax(X) V: what every implementation takes and checks.
//
//   x    (batch, d1, d2)   scores: row i of batch b is x(b, i, :)
//   v    (batch, d2, d3)   values
//   out  (batch, d1, d3)   out(b, i, c) = sum_j softmax(x(b, i, :))_j * v(b, j, c)
//
// Strides are at least 0, of x and v also 0. `out` overlaps neither, and inputs are read only. d2 =
// 0 gives zeros; every other extent is at least 1. Two values of a score are special:
//   -inf  is a masked key: its weight is 0. A row of nothing but -inf gives a row of zeros.
//   NaN   makes the row that holds it NaN. A NaN in v reaches the rows of its batch, in its column.
#pragma once

#include "common/stream.hpp"
#include "common/tensor.hpp"

namespace flash {

struct SoftmaxMatmulProblem;  // common/registry.hpp: a pass without its data

struct SoftmaxMatmulShape {
  Index batch = 1, d1 = 1, d2 = 1, d3 = 1;

  Shape<3> of_x() const { return {batch, d1, d2}; }
  Shape<3> of_v() const { return {batch, d2, d3}; }
  Shape<3> of_out() const { return {batch, d1, d3}; }
};

// The argument of a pass. The function that takes it says whether the views point to host memory or
// to device memory; on a GPU the work goes to `stream`. Trivially copyable, so that a kernel can
// take it.
template <class T>
struct SoftmaxMatmul {
  using Element = T;
  using Problem = SoftmaxMatmulProblem;

  TensorView<const T, 3> x, v;
  TensorView<T, 3> out;
  Stream stream = {};

  FLASH_HOST_DEVICE SoftmaxMatmulShape shape() const {
    return {x.extent(0), x.extent(1), x.extent(2), v.extent(2)};
  }
};

// Throws ShapeError unless the shapes fit each other and every extent but d2 is at least 1.
FLASH_EXPORT void check_softmax_matmul_shapes(const Shape<3>& x, const Shape<3>& v,
                                              const Shape<3>& out);

// Checks the tensors of a pass, and returns the shape of the problem.
template <class T>
SoftmaxMatmulShape check_softmax_matmul(const SoftmaxMatmul<T>& pass) {
  check_softmax_matmul_shapes(pass.x.shape(), pass.v.shape(), pass.out.shape());
  return pass.shape();
}

}  // namespace flash
