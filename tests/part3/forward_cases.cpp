#include "part3/forward_cases.hpp"

namespace flash::part3 {

using harness::AttentionCase;
using enum harness::Data;
using enum harness::Layout;
using enum DType;

std::vector<AttentionCase> forward_cases() {
  std::vector<AttentionCase> cases{
      // Of float a thread block takes 128 queries and 64 keys at a time, where head_dim is at most
      // 64 and shared memory allows.
      {.name = "one block: 128 x 64", .shape = {1, 1, 128, 64, 64}},
      {.name = "two blocks of keys: 128 x 128", .shape = {1, 1, 128, 128, 64}},
      {.name = "batches and heads: 3 x 5", .shape = {3, 5, 20, 30, 16}},
      {.name = "head_dim 40", .shape = {1, 2, 65, 100, 40}},
      {.name = "head_dim 128", .shape = {1, 1, 65, 100, 128}},
      {.name = "head_dim 256", .shape = {1, 1, 65, 100, 256}},
      {.name = "slices: head_dim 512", .shape = {1, 1, 33, 65, 512}},
      {.name = "slices: head_dim 1000", .shape = {1, 1, 5, 40, 1000}},
      {.name = "causal: slices: head_dim 512", .shape = {1, 1, 65, 65, 512}, .causal = true},
  };
  for (const DType type : {kFloat16, kBFloat16})
    for (AttentionCase problem : std::vector<AttentionCase>{
             {.name = "100", .shape = {2, 2, 100, 100, 40}},
             {.name = "causal: 200", .shape = {1, 2, 200, 200, 64}, .causal = true},
             {.name = "head_dim 128", .shape = {1, 1, 65, 100, 128}},
             {.name = "head_dim 256", .shape = {1, 1, 33, 65, 256}, .causal = true},
             {.name = "slices: head_dim 512", .shape = {1, 1, 33, 65, 512}},
             {.name = "large scores", .shape = {1, 1, 64, 200, 64}, .data = kLargeScores},
             {.name = "one key a query", .shape = {1, 1, 40, 200, 64}, .data = kOneHot},
             {.name = "NaN reaches the rows that see it",
             .shape = {1, 1, 70, 70, 8},
             .causal = true,
             .data = kNaN},
         })
      cases.push_back(problem.of_type(type));
  for (const auto& more : {harness::cases_of_forward_passes(), harness::cases_on_device()})
    cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

std::vector<AttentionCase> long_cases() {
  std::vector<AttentionCase> cases = harness::long_cases_on_device();
  cases.push_back(
      {.name = "long: 2 x 3000 x 3000", .shape = {1, 2, 3000, 3000, 64}, .causal = true});
  cases.push_back(
      {.name = "half: long: 2 x 3000 x 3000", .shape = {1, 2, 3000, 3000, 64}, .type = kFloat16});
  cases.push_back({.name = "half: causal: a head of 1024 columns: 2 x 1 x 1024",
                   .shape = {2, 1, 1024, 1024, 1024},
                   .causal = true,
                   .data = kHalfNormal,
                   .type = kFloat16,
                   .tolerance = harness::kToleranceOfSources});
  return cases;
}

}  // namespace flash::part3
