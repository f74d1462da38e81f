// Implements the oracle of softmax_matmul_c.h: flash_softmax_matmul_c.
#include "benchmarking/c_interface/softmax_matmul_c.h"

#include <algorithm>
#include <cmath>

#include "benchmarking/c_interface/c_interface.hpp"
#include "common/oracle.hpp"

using namespace flash;

int flash_softmax_matmul_oracle(const FlashSoftmaxMatmulShape* shape, const float* x, const float* v, double* out,
                                double* largest_error) {
  return guarded([&] {
    const FlashSoftmaxMatmulShape of = not_null("shape", shape);
    const auto scores = view_of<const float, 3>("x", x, {of.batch, of.d1, of.d2});
    const auto values = view_of<const float, 3>("v", v, {of.batch, of.d2, of.d3});
    const Tensor<double, 3> want = softmax_matmul_oracle(scores, values);
    const Tensor<double, 3> magnitude = softmax_matmul_magnitude(scores, values);
    std::copy_n(want.data(), want.size(), &not_null("out", out));

    double largest_score = 0, largest_magnitude = 0;
    for (Index i = 0; i < scores.size(); ++i)  // -inf is a masked key: no score
      if (std::isfinite(x[i])) largest_score = std::fmax(largest_score, std::fabs(x[i]));
    for (Index i = 0; i < magnitude.size(); ++i) largest_magnitude = std::fmax(largest_magnitude, magnitude.data()[i]);
    not_null("largest_error", largest_error) = softmax_matmul_bound(of.d2, largest_score) * largest_magnitude;
  });
}
