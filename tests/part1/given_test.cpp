// What part 1 gives, on the CPU: online softmax and the unfused softmax-matmul, against the oracle.
#include "part1/given_checks.hpp"

using namespace flash;
using namespace flash::part1;

TEST_CASE("online softmax equals the oracle") {
  check_online_softmax(
      [](auto& x, auto& out) { online_softmax(matrix(x.view()), matrix(out.view())); });
}

TEST_CASE("online softmax works in place and on strided rows") {
  const Tensor<float, 3> x = make_input<3>({1, 6, 11}, kNormal, 5);
  PaddedTensor strided(x.shape(), kSpread);
  for (Index i = 0; i < 6; ++i)
    for (Index j = 0; j < 11; ++j) strided.view()(0, i, j) = x(0, i, j);
  online_softmax(matrix(strided.view()), matrix(strided.view()));
  const Tensor<double, 3> want = softmax_oracle(x.view());
  check_close(packed(strided.view()), want, want, online_softmax_bound(11));
  CHECK(strided.written_outside("out") == "");
}

TEST_CASE("the unfused softmax-matmul equals the oracle, along each axis") {
  check_unfused([](auto& x, auto& v, auto& out, int axis) {
    softmax_matmul({x.view(), v.view(), out.view()}, axis);
  });
}

TEST_CASE("the given functions refuse what does not fit, in one line") {
  Tensor<float, 2> x({3, 4}), wrong({3, 5}), empty({3, 0});
  CHECK_THROWS_WITH(online_softmax(x.view(), wrong.view()),
                    "out has shape (3, 5); it must be x's, (3, 4)");
  CHECK_THROWS_WITH(online_softmax(empty.view(), empty.view()),
                    "x has shape (3, 0); it must be (rows, columns), both at least 1");

  Tensor<float, 3> scores({2, 3, 4}), values({2, 4, 5}), out({2, 3, 5});
  CHECK_THROWS_WITH(softmax_matmul({scores.view(), out.view(), out.view()}),
                    "v has shape (2, 3, 5); it must be (batch = 2, d2 = 4, d3) with d3 at least 1");
  const SoftmaxMatmul<float> pass{scores.view(), values.view(), out.view()};
  CHECK_THROWS_WITH(softmax_matmul(pass, 3), "axis is 3; it must be -1 (the last) or 0 to 2");
  CHECK_THROWS_AS(softmax_matmul(pass, -2), ArgumentError);
}
