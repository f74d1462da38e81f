// What part 1 gives, on the CPU: online softmax and the unfused softmax-matmul, against the oracle.
#include "part1/given_checks.hpp"

using namespace flash;
using namespace flash::part1;

TEST_CASE("online softmax equals the oracle") { check_online_softmax(online_softmax); }

TEST_CASE("online softmax works in place and on strided rows") {
  const Tensor<float, 3> x = make_input<3>({1, 6, 11}, Pattern::kNormal, 5);
  const Tensor<double, 3> want = softmax_oracle(x.view());
  Tensor<float, 2> wide({6, 20});
  const TensorView<float, 2> inside(wide.data() + 2, {6, 11}, {20, 1});
  for (Index i = 0; i < 6; ++i)
    for (Index j = 0; j < 11; ++j) inside(i, j) = x(0, i, j);
  online_softmax(inside, inside);
  for (Index i = 0; i < 6; ++i) {
    for (Index j = 0; j < 11; ++j) CHECK_THAT(inside(i, j), Catch::Matchers::WithinAbs(want(0, i, j), 1e-6));
    CHECK(wide(i, 0) == 0);
    CHECK(wide(i, 13) == 0);
  }
}

TEST_CASE("the unfused softmax-matmul equals the oracle, along each axis") {
  check_unfused([](auto x, auto v, auto out, int axis) { softmax_matmul(x, v, out, axis); });
}

TEST_CASE("the given functions refuse what does not fit, in one line") {
  Tensor<float, 2> x({3, 4}), wrong({3, 5}), empty({3, 0});
  CHECK_THROWS_WITH(online_softmax(x.view(), wrong.view()), "out has shape (3, 5); it must be x's, (3, 4)");
  CHECK_THROWS_WITH(online_softmax(empty.view(), empty.view()), "x has shape (3, 0); it must be (rows, columns), both at least 1");

  Tensor<float, 3> scores({2, 3, 4}), values({2, 4, 5}), out({2, 3, 5}), few({2, 3, 5});
  CHECK_THROWS_WITH(softmax_matmul(scores.view(), few.view(), out.view()),
                    "v has shape (2, 3, 5); it must be (batch = 2, d2 = 4, d3) with d3 at least 1");
  CHECK_THROWS_WITH(softmax_matmul(scores.view(), values.view(), scores.view()),
                    "out has shape (2, 3, 4); it must be (batch, d1, d3) = (2, 3, 5)");
  CHECK_THROWS_WITH(softmax_matmul(scores.view(), values.view(), out.view(), 3),
                    "axis is 3; it must be -1 (the last) or 0 to 2");
  CHECK_THROWS_AS(softmax_matmul(scores.view(), values.view(), out.view(), -2), ArgumentError);
}
