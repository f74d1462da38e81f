// Implements backward_cases.hpp. Of float with heads of up to 64 a thread block takes 128 rows of
// one side and 32 of the other at a time, where shared memory allows.
#include "bonus/backward_cases.hpp"

namespace flash::bonus {

using harness::AttentionCase;
using enum harness::Data;
using enum harness::Layout;
using enum DType;

std::vector<AttentionCase> cases_of_a_gradient() {
  return {
      {.name = "one block: 128 x 128", .shape = {1, 1, 128, 128, 64}},
      {.name = "two blocks of keys: 128 x 256", .shape = {1, 1, 128, 256, 64}},
      {.name = "two blocks of queries: 256 x 128", .shape = {1, 1, 256, 128, 64}},
      {.name = "batches and heads: 3 x 2", .shape = {3, 2, 32, 64, 32}},
      {.name = "head_dim 128", .shape = {1, 1, 64, 64, 128}},
      {.name = "head_dim 256", .shape = {1, 1, 32, 32, 256}},
      {.name = "a scale of its own", .shape = {1, 1, 64, 64, 32}, .scale = -0.3},
      {.name = "large scores", .shape = {1, 1, 64, 128, 64}, .data = kLargeScores},
      {.name = "very negative scores", .shape = {1, 1, 64, 64, 32}, .data = kVeryNegative},
      {.name = "one key a query", .shape = {1, 1, 64, 64, 64}, .data = kOneHot},
      {.name = "half: 128 x 64", .shape = {1, 1, 128, 64, 64}, .type = kFloat16},
      {.name = "bfloat16: 128 x 64", .shape = {1, 1, 128, 64, 64}, .type = kBFloat16},
  };
}

std::vector<AttentionCase> cases_of_all_gradients() {
  std::vector<AttentionCase> cases{
      {.name = "many queries and one key", .shape = {1, 2, 300, 1, 16}},
      {.name = "head_dim 40", .shape = {1, 2, 65, 100, 40}},
      {.name = "head_dim 100", .shape = {1, 1, 65, 70, 100}},
      {.name = "head_dim 200", .shape = {1, 1, 33, 40, 200}},
      {.name = "rising scores: a new maximum in each block",
       .shape = {1, 2, 40, 300, 16},
       .data = kRising},
      {.name = "very negative scores (ragged)",
       .shape = {1, 1, 40, 200, 16},
       .data = kVeryNegative},
      // Scores that are rounded to Half on the way give weights that are wrong by a tenth.
      {.name = "bfloat16: large scores",
       .shape = {1, 1, 33, 40, 64},
       .data = kLargeScores,
       .type = kBFloat16},
      // A NaN reaches the gradients that see it and no others: none of it is lost, and nowhere a 0
      // is multiplied by it.
      {.name = "NaN in v", .shape = {2, 2, 140, 140, 8}, .causal = true, .data = kNaN},
      {.name = "NaN in a key that no query sees",
       .shape = {1, 2, 150, 250, 8},
       .causal = true,
       .nan_in = "k",
       .nan_row = 155},
      {.name = "rows whose lse is -inf have no weights",
       .shape = {2, 2, 40, 50, 16},
       .without_weights = true},
  };
  for (const char* const input : {"q", "k", "d_out"})
    cases.push_back({.name = "NaN in " + std::string(input),
                     .shape = {1, 2, 140, 140, 8},
                     .causal = true,
                     .nan_in = input,
                     .nan_row = 70});
  for (const DType type : {kFloat16, kBFloat16})
    for (AttentionCase problem : std::vector<AttentionCase>{
             {.name = "causal: 150", .shape = {1, 2, 150, 150, 64}, .causal = true},
             {.name = "head_dim 128", .shape = {1, 1, 33, 40, 128}},
             {.name = "head_dim 256", .shape = {1, 1, 33, 40, 256}, .causal = true}})
      cases.push_back(problem.of_type(type));
  const auto more = harness::cases_on_device();
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

std::vector<AttentionCase> long_cases() {
  std::vector<AttentionCase> cases = harness::long_cases_on_device();
  for (const bool causal : {false, true})
    cases.push_back({.name = causal ? "long and causal: 2 x 3000 x 3000" : "long: 2 x 3000 x 3000",
                     .shape = {1, 2, 3000, 3000, 64},
                     .causal = causal});
  return cases;
}

}  // namespace flash::bonus
