// Checks of part 1's given functions, shared by their CPU and their GPU tests.
#pragma once

#include <cmath>

#include "common/compare.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "harness/catch.hpp"
#include "part1_softmax_matmul/online_softmax.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash::part1 {

// got against the oracle; what is NaN in one has to be NaN in the other. Below 2^-126 float32's rounding errors do not shrink
// with the value any more: kUnderflow stands in for the magnitude of terms that small.
inline void check_close(const Tensor<float, 3>& got, const Tensor<double, 3>& want, const Tensor<double, 3>& magnitude,
                        double bound) {
  constexpr double kUnderflow = 0x1p-100;
  for (Index k = 0; k < want.size(); ++k) {
    const double expected = want.data()[k], value = got.data()[k];
    if (std::isnan(expected) ? std::isnan(value) : std::fabs(value - expected) <= bound * (magnitude.data()[k] + kUnderflow))
      continue;
    CAPTURE(k, value, expected, bound);
    FAIL("element differs from the oracle");
  }
  SUCCEED();
}

// `run` takes (x, out), both (rows, columns).
template <class Run>
void check_online_softmax(Run run) {
  for (const Pattern pattern : {Pattern::kNormal, Pattern::kLargeLogits, Pattern::kRising, Pattern::kVeryNegative,
                                Pattern::kMasked, Pattern::kNaN, Pattern::kAllEqual, Pattern::kOneHot})
    for (const Shape<2> shape : {Shape<2>{1, 1}, {7, 31}, {5, 32}, {9, 33}, {10, 200}, {3, 1025}}) {
      CAPTURE(to_string(pattern), shape[0], shape[1]);
      const Tensor<float, 3> x = make_input<3>({1, shape[0], shape[1]}, pattern, 11);
      Tensor<float, 3> got({1, shape[0], shape[1]});
      std::fill_n(got.data(), got.size(), poison());
      run(TensorView<const float, 2>(x.data(), shape), TensorView<float, 2>(got.data(), shape));
      const Tensor<double, 3> want = softmax_oracle(x.view());
      // |x - m| reaches 400 for large logits: 400 roundings in the argument of exp.
      check_close(got, want, want, 0x1p-24 * (8 + 800 + 4 * std::sqrt(static_cast<double>(shape[1]))));
    }
}

// `run` takes (x, v, out, axis).
template <class Run>
void check_unfused(Run run) {
  for (const Pattern pattern : {Pattern::kNormal, Pattern::kLargeLogits, Pattern::kMasked, Pattern::kNaN})
    for (const Shape<3> shape : {Shape<3>{1, 1, 1}, {2, 7, 9}, {3, 33, 65}, {2, 100, 130}})
      for (const int axis : {-1, 0, 1, 2}) {
        CAPTURE(to_string(pattern), shape[0], shape[1], shape[2], axis);
        const Tensor<float, 3> x = make_input<3>(shape, pattern, 21), v = make_input<3>({shape[0], shape[2], 37}, Pattern::kNormal, 22);
        Tensor<float, 3> got({shape[0], shape[1], 37});
        std::fill_n(got.data(), got.size(), poison());
        run(x.view(), v.view(), got.view(), axis);
        check_close(got, softmax_matmul_oracle(x.view(), v.view(), axis), softmax_matmul_magnitude(x.view(), v.view(), axis),
                    softmax_matmul_bound(shape[2], 200));
      }
}

}  // namespace flash::part1
