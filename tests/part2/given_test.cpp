// Standard attention against the oracle, on the problems of the graded cases; and that it refuses
// what it must.
#include "harness/catch.hpp"
#include "part2/attention_cases.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

using namespace flash;
using harness::AttentionCase;
using harness::Data;
using harness::wrong_in;

namespace {

template <class T>
void check_standard_attention(const AttentionCase& problem) {
  const AttentionShape& shape = problem.shape;
  const auto inputs = harness::make_inputs<T>(problem.shape, problem.data, 1);
  const auto& [q, k, v] = inputs;
  const Tensor<T, 4> d_out = normal<T>(shape.of_queries(), 4);
  Tensor<T, 4> out(shape.of_queries());
  Tensor<LseType<T>, 4> p({shape.batch, shape.heads, shape.queries, shape.keys});
  Tensor<LseType<T>, 3> lse(shape.of_rows());
  standard_attention_forward<T>(
      {q.view(), k.view(), v.view(), out.view(), lse.view(), problem.options()}, p.view());
  const auto forward = inputs.forward(problem.options());
  CAPTURE(problem.name);
  const double forward_bound = attention_output_bound<T>(shape, forward.largest_score);
  CHECK(wrong_in<T>(out.view(), forward.out, forward_bound, "query", 0) == "");
  CHECK(harness::wrong_lse<LseType<T>>(lse.view(), forward.lse, forward_bound, 0) == "");

  Tensor<T, 4> d_q(shape.of_queries()), d_k(shape.of_keys()), d_v(shape.of_keys());
  standard_attention_backward<T>(
      {q.view(), k.view(), v.view(), out.view(), lse.view(), d_out.view(), d_q.view(), d_k.view(),
       d_v.view(), problem.options()},
      p.view());
  const auto backward = inputs.backward(d_out, problem.options());
  const double bound = attention_gradient_bound<T>(shape, forward.largest_score);
  CHECK(wrong_in<T>(d_q.view(), backward.d_q, bound, "query", 0) == "");
  CHECK(wrong_in<T>(d_k.view(), backward.d_k, bound, "key", 0) == "");
  CHECK(wrong_in<T>(d_v.view(), backward.d_v, bound, "key", 0) == "");
}

}  // namespace

TEST_CASE("standard attention is the oracle's, forward and backward") {
  for (const AttentionCase& problem : part2::attention_cases()) {
    if (problem.layout != harness::Layout::kRowMajor || problem.data == Data::kMinusInfinity)
      continue;
    check_standard_attention<float>(problem);
#ifndef __SANITIZE_ADDRESS__  // the memory of all types is used alike
    check_standard_attention<double>(problem);
    check_standard_attention<BFloat16>(problem);
#endif
  }
}

TEST_CASE("standard attention names the argument that does not fit") {
  const Tensor<float, 4> q({1, 2, 3, 4}), k({1, 2, 5, 4});
  Tensor<float, 4> out({1, 2, 3, 4}), p({1, 2, 3, 5}), short_p({1, 2, 3, 4});
  Tensor<float, 3> lse({1, 2, 3});
  const AttentionForward<float> pass{q.view(), k.view(), k.view(), out.view(), lse.view()};
  CHECK_NOTHROW(standard_attention_forward<float>(pass, p.view()));
  CHECK_THROWS_WITH(standard_attention_forward<float>(pass, short_p.view()),
                    "p has shape (1, 2, 3, 4); it must be (1, 2, 3, 5)");
  AttentionForward<float> other_v = pass, other_scale = pass;
  other_v.v = q.view();
  other_scale.options.scale = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH(standard_attention_forward<float>(other_v, p.view()),
                    "v has shape (1, 2, 3, 4); it must be (1, 2, 5, 4)");
  CHECK_THROWS_AS(standard_attention_forward<float>(other_scale, p.view()), ArgumentError);
}
