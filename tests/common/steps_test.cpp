// Tests of common/steps.hpp: where no step is replaced it gives what the oracle gives.
#include "common/steps.hpp"

#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "harness/catch.hpp"

namespace flash {
namespace {

void check_equal(Pass& pass, Output output, const double* want, Index rows, Index columns) {
  double worst = 0;
  for (Index n = 0; n < rows; ++n) {
    const StepRow row = pass.row(output, n);
    for (Index c = 0; c < columns; ++c)
      worst = std::fmax(worst, std::fabs(row.value[c] - want[n * columns + c]));
  }
  CHECK(worst < 1e-13);
}

}  // namespace

TEST_CASE("the steps give what the oracle gives, in any blocks") {
  const AttentionShape shape{2, 2, 5, 7, 3};
  const auto q = normal<double>(shape.of_queries(), 1), k = normal<double>(shape.of_keys(), 2),
             v = normal<double>(shape.of_keys(), 3), d_out = normal<double>(shape.of_queries(), 4);
  for (const bool causal : {false, true})
    for (const Blocks blocks : {Blocks{2, 3}, {16, 16}}) {
      const AttentionOptions options{.causal = causal};
      const auto want = attention_oracle<double>(q.view(), k.view(), v.view(), options);
      const auto gradients =
          attention_backward_oracle<double>(q.view(), k.view(), v.view(), d_out.view(), options);
      Tensor<double, 4> lse({2, 1, 2, 5});
      std::copy_n(want.lse.data(), lse.size(), lse.data());
      const Steps steps;
      Scores scores, scores_again;
      const Given forward{shape, options, {&q, &k, &v}},
          backward{shape, options, {&q, &k, &v, &want.out.value, &lse, &d_out, &d_out, &d_out}};
      const auto pass = pass_of(forward, scores, steps, blocks),
                 pass_back = pass_of(backward, scores_again, steps, blocks);
      check_equal(*pass, Output::kOut, want.out.value.data(), 20, 3);
      check_equal(*pass, Output::kLse, want.lse.data(), 20, 1);
      check_equal(*pass_back, Output::kDQ, gradients.d_q.value.data(), 20, 3);
      check_equal(*pass_back, Output::kDK, gradients.d_k.value.data(), 28, 3);
      check_equal(*pass_back, Output::kDV, gradients.d_v.value.data(), 28, 3);
    }
}

}  // namespace flash
