// When a verdict may say what follows from which gradients are wrong.
#include "harness/gradient_verdicts.hpp"

#include "harness/attention_data.hpp"
#include "harness/catch.hpp"

using namespace flash;
using harness::Data;

namespace {

bool tells(const AttentionShape& shape, Data data) {
  const auto [q, k, v] = harness::make_inputs<float>(shape, data, 1);
  const auto d_out = normal<float>(shape.of_queries(), 5);
  const auto want = attention_backward_oracle(q.view(), k.view(), v.view(), d_out.view());
  return !harness::pointed_to(want, false, false, true, harness::Passes::kOne).empty();
}

}  // namespace

TEST_CASE("which gradients are wrong says something, but where they hold a NaN or are 0 anyway") {
  CHECK(tells({1, 2, 5, 7, 8}, Data::kNormal));
  CHECK(tells({1, 1, 1, 2, 8}, Data::kNormal));
  CHECK_FALSE(tells({1, 2, 5, 7, 8}, Data::kNaN));
  CHECK_FALSE(tells({1, 1, 5, 1, 8}, Data::kNormal));
}
