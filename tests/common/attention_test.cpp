// The attention problem's checks, and its oracle: against values worked out by hand, against
// softmax-matmul's oracle, and its gradients against differences of its own output.
#include "common/attention.hpp"

#include <cmath>
#include <limits>

#include "harness/cases/attention_data.hpp"
#include "harness/catch.hpp"

using namespace flash;
using Catch::Matchers::WithinAbs;
using flash::harness::ContainsSubstring;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Inputs = harness::AttentionInputs<double>;

Inputs random_inputs(const Shape<4>& of_queries, const Shape<4>& of_keys) {
  return {normal<double>(of_queries, 1), normal<double>(of_keys, 2), normal<double>(of_keys, 3)};
}

// sum(out * d_out), which the gradients are of.
double loss(const Inputs& inputs, const Tensor<double, 4>& d_out, const AttentionOptions& options) {
  const auto out = inputs.forward(options, Magnitudes::kLeftOut).out.value;
  double sum = 0;
  for (Index i = 0; i < out.size(); ++i) sum += out.data()[i] * d_out.data()[i];
  return sum;
}

}  // namespace

TEST_CASE("shapes that do not fit, null views and bad scales are named") {
  CHECK_THROWS_WITH(
      attention_shape({2, 0, 3, 8}, {2, 0, 3, 8}),
      "q has shape (2, 0, 3, 8); heads must be at least 1 in (batch, heads, queries, head_dim)");
  CHECK_THROWS_WITH(
      attention_shape({2, 4, 3, 8}, {2, 4, 5, 7}),
      "k has shape (2, 4, 5, 7); it must be (batch = 2, heads = 4, keys, head_dim = 8)");
  CHECK_THROWS_AS(attention_shape({2, 4, 3, 8}, {2, 3, 5, 8}), ShapeError);
  CHECK(attention_shape({2, 4, 3, 8}, {2, 4, 0, 8}).keys == 0);
  CHECK(attention_scale({}, 16) == 0.25);
  CHECK(attention_scale({.scale = -2.0}, 16) == -2);
  CHECK_THROWS_WITH(
      attention_scale({.scale = std::nan("")}, 16),
      ContainsSubstring("scale is") && ContainsSubstring("nan; it must be a number from -1e38 to"));
  for (const double large : {kInfinity, -1.01e38})
    CHECK_THROWS_AS(attention_scale({.scale = large}, 16), ArgumentError);
  for (const double scale : {1e38, -1.2e-38}) CHECK(attention_scale({.scale = scale}, 16) == scale);
  for (const double scale : {1.1e-38, -1e-320}) CHECK(attention_scale({.scale = scale}, 16) == 0);
  const TensorView<const float, 3> nowhere(nullptr, {1, 2, 3});
  CHECK_THROWS_WITH(check_view("lse", nowhere, {1, 2, 3}),
                    "lse is a null view; it must point to 6 elements");
  CHECK_THROWS_WITH(check_view("lse", nowhere, {1, 2, 4}),
                    "lse has shape (1, 2, 3); it must be (1, 2, 4)");
  CHECK_NOTHROW(check_view("lse", TensorView<const float, 3>(nullptr, {1, 0, 3}), {1, 0, 3}));
}

TEST_CASE("attention of scores 0, ln 2, ln 5 weighs the values with 1/8, 2/8, 5/8") {
  Inputs inputs{Tensor<double, 4>({1, 1, 1, 1}), Tensor<double, 4>({1, 1, 3, 1}),
                Tensor<double, 4>({1, 1, 3, 1})};
  auto& [q, k, v] = inputs;
  q.data()[0] = 1;
  k.data()[1] = std::log(2.0), k.data()[2] = std::log(5.0);
  v.data()[0] = 8, v.data()[1] = -16, v.data()[2] = 24;
  const auto oracle = inputs.forward();
  CHECK_THAT(oracle.out.value.data()[0], WithinAbs(1 - 4 + 15, 1e-14));
  CHECK_THAT(oracle.out.magnitude.data()[0], WithinAbs(1 + 4 + 15, 1e-14));
  CHECK_THAT(oracle.lse.data()[0], WithinAbs(std::log(8.0), 1e-15));
  CHECK_THAT(oracle.largest_score, WithinAbs(std::log(5.0), 1e-15));
}

TEST_CASE("attention is softmax-matmul of the scaled scores") {
  const Inputs inputs = random_inputs({2, 3, 7, 5}, {2, 3, 9, 5});
  const auto& [q, k, v] = inputs;
  for (const bool causal : {false, true}) {
    const auto oracle = inputs.forward({.causal = causal, .scale = 0.7});
    Tensor<double, 3> x({6, 7, 9});
    for (Index bh = 0; bh < 6; ++bh)
      for (Index i = 0; i < 7; ++i)
        for (Index j = 0; j < 9; ++j) {
          for (Index c = 0; c < 5; ++c)
            x(bh, i, j) += 0.7 * q(bh / 3, bh % 3, i, c) * k(bh / 3, bh % 3, j, c);
          if (causal && j > i) x(bh, i, j) = -kInfinity;
        }
    const TensorView<const double, 3> values(v.data(), {6, 9, 5});
    const auto want = softmax_matmul_oracle(std::as_const(x).view(), values);
    for (Index i = 0; i < want.size(); ++i)
      CHECK_THAT(oracle.out.value.data()[i], WithinAbs(want.data()[i], 1e-13));
  }
}

TEST_CASE("the gradients are the differences of the output") {
  for (const bool causal : {false, true})
    for (const auto& [queries, keys] : {std::pair<Index, Index>{4, 6}, {6, 4}}) {
      Inputs inputs = random_inputs({2, 2, queries, 3}, {2, 2, keys, 3});
      const auto d_out = normal<double>({2, 2, queries, 3}, 4);
      const AttentionOptions options{.causal = causal};
      const auto gradients = inputs.backward(d_out, options);
      Tensor<double, 4>* const moved[3] = {&inputs.q, &inputs.k, &inputs.v};
      const WithMagnitude* const got[3] = {&gradients.d_q, &gradients.d_k, &gradients.d_v};
      for (int input = 0; input < 3; ++input)
        for (Index i = 0; i < moved[input]->size(); ++i) {
          constexpr double kStep = 1e-5;
          double& x = moved[input]->data()[i];
          const double before = x;
          x = before + kStep;
          const double above = loss(inputs, d_out, options);
          x = before - kStep;
          const double below = loss(inputs, d_out, options);
          x = before;
          CAPTURE(causal, queries, keys, input, i);
          CHECK_THAT(got[input]->value.data()[i], WithinAbs((above - below) / (2 * kStep), 1e-9));
          CHECK((1 + 1e-14) * got[input]->magnitude.data()[i] >=
                std::fabs(got[input]->value.data()[i]));  // both are rounded
        }
    }
}

TEST_CASE("no key, or only keys at -inf, gives 0 and an lse of -inf") {
  const Inputs none = random_inputs({1, 2, 3, 4}, {1, 2, 0, 4});
  const auto empty = none.forward();
  for (Index i = 0; i < empty.out.value.size(); ++i) CHECK(empty.out.value.data()[i] == 0);
  for (Index i = 0; i < empty.lse.size(); ++i) CHECK(empty.lse.data()[i] == -kInfinity);
  const auto gradients = none.backward(none.q);
  for (Index i = 0; i < gradients.d_q.value.size(); ++i) CHECK(gradients.d_q.value.data()[i] == 0);

  Inputs one = random_inputs({1, 1, 2, 1}, {1, 1, 2, 1});
  one.q.data()[0] = 1, one.q.data()[1] = -1;
  one.k.data()[0] = one.k.data()[1] = -kInfinity;
  const auto oracle = one.forward();
  CHECK(oracle.out.value.data()[0] == 0);
  CHECK(oracle.lse.data()[0] == -kInfinity);
  CHECK(std::isnan(oracle.out.value.data()[1]));  // its scores are +inf
}

TEST_CASE("NaN reaches the rows that see it, and no other") {
  Inputs inputs = random_inputs({1, 2, 5, 4}, {1, 2, 5, 4});
  inputs.v(0, 1, 3, 2) = std::nan("");
  const auto out = inputs.forward({.causal = true}).out.value;
  for (Index h = 0; h < 2; ++h)
    for (Index i = 0; i < 5; ++i)
      for (Index c = 0; c < 4; ++c)
        CHECK(std::isnan(out(0, h, i, c)) == (h == 1 && i >= 3 && c == 2));
}
