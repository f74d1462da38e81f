// Part 1's contracts: what wrong arguments give, one clear line each. The checks are given code, in skeletons too.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "harness/catch.hpp"
#include "part1/softmax_matmul_cases.hpp"
#include "part1_softmax_matmul/measure.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

using namespace flash;

TEST_CASE("fused_softmax_matmul refuses what does not fit, in one line") {
  Tensor<float, 3> x({2, 3, 4}), v({2, 4, 5}), out({2, 3, 5});
  const auto run = [&](TensorView<float, 3> a, TensorView<float, 3> b, TensorView<float, 3> c, Index block_1 = 16,
                       Index block_2 = 16) { fused_softmax_matmul(a, b, c, block_1, block_2); };
  CHECK_THROWS_WITH(run(x.view(), v.view(), out.view(), 0), "block_1 is 0; it must be at least 1");
  CHECK_THROWS_WITH(run(x.view(), v.view(), out.view(), 16, -3), "block_2 is -3; it must be at least 1");
  Tensor<float, 3> other_batch({3, 4, 5}), other_d2({2, 7, 5}), no_d3({2, 4, 0}), no_batch({0, 3, 4}), no_rows({2, 0, 4});
  CHECK_THROWS_WITH(run(x.view(), other_batch.view(), out.view()),
                    "v has shape (3, 4, 5); it must be (batch = 2, d2 = 4, d3) with d3 at least 1");
  CHECK_THROWS_AS(run(x.view(), other_d2.view(), out.view()), ShapeError);
  CHECK_THROWS_AS(run(x.view(), no_d3.view(), out.view()), ShapeError);
  CHECK_THROWS_WITH(run(no_batch.view(), v.view(), out.view()),
                    "x has shape (0, 3, 4); it must be (batch, d1, d2) with batch and d1 at least 1");
  CHECK_THROWS_AS(run(no_rows.view(), v.view(), out.view()), ShapeError);
  CHECK_THROWS_WITH(run(x.view(), v.view(), v.view()), "out has shape (2, 4, 5); it must be (batch, d1, d3) = (2, 3, 5)");
}

TEST_CASE("measure refuses numbers of passes that make no sense") {
  struct Nothing : Work, Clock {
    void run() override {}
    void reset_peak_memory() override {}
    std::size_t peak_memory_bytes() override { return 0; }
    void synchronize() override {}
    double now_ms() override { return 0; }
  } nothing;
  CHECK_THROWS_WITH(measure(nothing, nothing, -1, 1), "warmups is -1; it must be at least 0");
  CHECK_THROWS_WITH(measure(nothing, nothing, 0, 0), "passes is 0; it must be at least 1");
}

TEST_CASE("the bound leaves out what is wrong: one key of many missed, or one counted twice") {
  using namespace flash::part1;
  using harness::PaddedTensor;
  const SoftmaxMatmulCase problem{.name = "many keys", .d1 = 9, .d2 = 4099, .d3 = 12};
  const auto with_keys = [](Index hidden) {
    return [hidden](const SoftmaxMatmulCase& p, PaddedTensor& x, PaddedTensor& v, PaddedTensor& out) {
      Tensor<float, 3> scores = packed(x.view());
      for (Index i = 0; i < p.d1; ++i)
        if (hidden >= 0) scores(0, i, hidden) = -INFINITY;
      fused_softmax_matmul(scores.view(), v.view(), out.view(), p.block_1, p.block_2);
      return std::size_t{0};
    };
  };
  CHECK(judge(problem, 1, with_keys(-1)).pass);
  CHECK_FALSE(judge(problem, 1, with_keys(0)).pass);
  CHECK_FALSE(judge(problem, 1, with_keys(4098)).pass);
}

TEST_CASE("bound: the reference solution's share of it") {
  using namespace flash::part1;
  double largest = 0;
  for (const SoftmaxMatmulCase& problem : softmax_matmul_cases()) {
    if (problem.d2 == 0) continue;
    double scaled = 0;
    const auto run = [](const SoftmaxMatmulCase& p, harness::PaddedTensor& x, harness::PaddedTensor& v, harness::PaddedTensor& out) {
      fused_softmax_matmul(x.view(), v.view(), out.view(), p.block_1, p.block_2);
      return std::size_t{0};
    };
    const std::string text = judge(problem, 1, run).text;
    double bound = 0;
    REQUIRE(std::sscanf(text.c_str(), "scaled max error %lf (bound %lf)", &scaled, &bound) == 2);
    std::cout << problem.name << ": " << scaled / bound << " of the bound\n";
    largest = std::max(largest, scaled / bound);
  }
  CHECK(largest < 1.0 / 3);
}
