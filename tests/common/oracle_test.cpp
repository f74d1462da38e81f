// The oracle against values worked out by hand, and against what must hold of any softmax.
#include "common/oracle.hpp"

#include <cmath>
#include <limits>

#include "common/inputs.hpp"
#include "harness/catch.hpp"

using namespace flash;
using Catch::Matchers::WithinAbs;

TEST_CASE("softmax of 0, ln 2, ln 5 is 1/8, 2/8, 5/8") {
  Tensor<double, 3> x({1, 1, 3});
  x(0, 0, 1) = std::log(2.0);
  x(0, 0, 2) = std::log(5.0);
  const TensorView<const double, 3> view = x.view();
  const auto p = softmax_oracle(view);
  CHECK_THAT(p(0, 0, 0), WithinAbs(0.125, 1e-15));
  CHECK_THAT(p(0, 0, 1), WithinAbs(0.25, 1e-15));
  CHECK_THAT(p(0, 0, 2), WithinAbs(0.625, 1e-15));
}

TEST_CASE(
    "softmax-matmul of equal scores is the mean of the values, its magnitude the mean of their "
    "size") {
  const auto x = make_input<3>({1, 2, 4}, Pattern::kAllEqual, 1);
  Tensor<float, 3> v({1, 4, 1});
  v(0, 0, 0) = 1;
  v(0, 1, 0) = -3;
  v(0, 2, 0) = 4;
  v(0, 3, 0) = 6;
  CHECK_THAT(softmax_matmul_oracle(x.view(), std::as_const(v).view())(0, 1, 0),
             WithinAbs(2, 1e-15));
  CHECK_THAT(softmax_matmul_magnitude(x.view(), std::as_const(v).view())(0, 1, 0),
             WithinAbs(3.5, 1e-15));
}

TEST_CASE(
    "along each axis the weights of a slice add up to 1, and a constant added to it changes "
    "nothing") {
  const auto x = make_input<3>({3, 4, 5}, Pattern::kLargeLogits, 2);
  Tensor<double, 3> shifted({3, 4, 5});
  for (Index k = 0; k < x.size(); ++k) shifted.data()[k] = x.data()[k] + 1000.0;
  for (const int axis : {0, 1, 2}) {
    const auto p = softmax_oracle(x.view(), axis),
               q = softmax_oracle(std::as_const(shifted).view(), axis);
    double total = 0;
    for (Index k = 0; k < p.size(); ++k) {
      total += p.data()[k];
      CHECK_THAT(q.data()[k], WithinAbs(p.data()[k], 1e-12));
    }
    CHECK_THAT(total, WithinAbs(60.0 / static_cast<double>(x.extent(axis)), 1e-12));
  }
}

TEST_CASE(
    "a score of -inf is a key that is not there, a row of nothing else gives zeros, NaN stays in "
    "its row") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Tensor<float, 3> x({1, 3, 2}), v({1, 2, 1});
  x(0, 0, 0) = -infinity;
  x(0, 1, 0) = x(0, 1, 1) = -infinity;
  x(0, 2, 1) = std::numeric_limits<float>::quiet_NaN();
  v(0, 0, 0) = 10;
  v(0, 1, 0) = 20;
  const auto out = softmax_matmul_oracle(std::as_const(x).view(), std::as_const(v).view());
  CHECK(out(0, 0, 0) == 20);
  CHECK(out(0, 1, 0) == 0);
  CHECK(std::isnan(out(0, 2, 0)));
}

TEST_CASE("no keys at all give zeros") {
  const Tensor<float, 3> x({1, 2, 0}), v({1, 0, 3});
  const auto out = softmax_matmul_oracle(x.view(), v.view());
  for (Index k = 0; k < out.size(); ++k) CHECK(out.data()[k] == 0);
}

TEST_CASE("shapes that do not fit are refused") {
  const Tensor<float, 3> x({2, 3, 4}), v({2, 5, 6});
  CHECK_THROWS_AS(softmax_matmul_oracle(x.view(), v.view()), ShapeError);
  CHECK_THROWS_AS(softmax_oracle(x.view(), 3), ArgumentError);
}
