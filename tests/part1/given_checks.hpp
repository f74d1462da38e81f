// Checks of part 1's given functions, shared by their CPU and their GPU tests.
#pragma once

#include <cmath>

#include "common/oracle.hpp"
#include "harness/catch.hpp"
#include "part1/softmax_matmul_cases.hpp"
#include "part1_softmax_matmul/online_softmax.hpp"

namespace flash::part1 {

inline void check_close(const Tensor<float, 3>& got, const Tensor<double, 3>& want,
                        const Tensor<double, 3>& magnitude, double bound) {
  using harness::with_heads;
  CHECK(harness::wrong_in<float>(with_heads(got.view()), {with_heads(want), with_heads(magnitude)},
                                 bound, "row", 0) == "");
}

// Of x - m, which reaches 400 for large logits, 400 roundings are in the argument of exp.
inline double online_softmax_bound(Index columns) {
  return 0x1p-24 * (8 + 800 + 4 * std::sqrt(static_cast<double>(columns)));
}

// The only batch as a matrix.
template <class T>
TensorView<T, 2> matrix(TensorView<T, 3> x) {
  return {x.data(), {x.extent(1), x.extent(2)}, {x.stride(1), x.stride(2)}};
}

inline Tensor<float, 3> unwritten(const Shape<3>& shape) {
  Tensor<float, 3> tensor(shape);
  std::fill_n(tensor.data(), tensor.size(), poison());
  return tensor;
}

// `run` takes two tensors (x, out), both (1, rows, columns).
template <class Run>
void check_online_softmax(Run run) {
  for (const Pattern pattern :
       {kNormal, kLargeLogits, kRising, kVeryNegative, kMasked, kNaN, kAllEqual, kOneHot})
    for (const Shape<3> shape :
         {Shape<3>{1, 1, 1}, {1, 7, 31}, {1, 5, 32}, {1, 9, 33}, {1, 10, 200}, {1, 3, 1025}}) {
      CAPTURE(to_string(pattern), shape[1], shape[2]);
      const Tensor<float, 3> x = make_input<3>(shape, pattern, 11);
      Tensor<float, 3> got = unwritten(shape);
      run(x, got);
      const Tensor<double, 3> want = softmax_oracle(x.view());
      check_close(got, want, want, online_softmax_bound(shape[2]));
    }
}

// `run` takes three tensors and a number, (x, v, out, axis).
template <class Run>
void check_unfused(Run run) {
  for (const Pattern pattern : {kNormal, kLargeLogits, kMasked, kNaN})
    for (const SoftmaxMatmulShape shape :
         {SoftmaxMatmulShape{1, 1, 1, 37}, {2, 7, 9, 37}, {3, 33, 65, 37}, {2, 100, 130, 37}})
      for (const int axis : {-1, 0, 1, 2}) {
        CAPTURE(to_string(pattern), shape.batch, shape.d1, shape.d2, axis);
        const Tensor<float, 3> x = make_input<3>(shape.of_x(), pattern, 21),
                               v = make_input<3>(shape.of_v(), kNormal, 22);
        Tensor<float, 3> got = unwritten(shape.of_out());
        run(x, v, got, axis);
        check_close(got, softmax_matmul_oracle(x.view(), v.view(), axis),
                    softmax_matmul_magnitude(x.view(), v.view(), axis),
                    softmax_matmul_bound(shape.d2, 200));
      }
}

}  // namespace flash::part1
