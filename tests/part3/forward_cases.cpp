// Implements forward_cases.hpp.
#include "part3/forward_cases.hpp"

namespace flash::part3 {

using harness::DeviceCase;
using enum harness::Data;
using enum harness::Layout;
using enum DType;

std::vector<DeviceCase> forward_cases() {
  std::vector<DeviceCase> cases{
      // Of float a thread block takes 128 queries and 64 keys at a time, where head_dim is at most
      // 64 and shared memory allows.
      {.name = "one block: 128 x 64", .shape = {1, 1, 128, 64, 64}},
      {.name = "two blocks of keys: 128 x 128", .shape = {1, 1, 128, 128, 64}},
      {.name = "batches and heads: 3 x 5", .shape = {3, 5, 20, 30, 16}},
      {.name = "head_dim 40", .shape = {1, 2, 65, 100, 40}},
      {.name = "head_dim 128", .shape = {1, 1, 65, 100, 128}},
      {.name = "head_dim 256", .shape = {1, 1, 65, 100, 256}},
      {.name = "head_dim 512", .shape = {1, 1, 33, 65, 512}},
      {.name = "head_dim 1000", .shape = {1, 1, 5, 40, 1000}},
      {.name = "causal: head_dim 512", .shape = {1, 1, 65, 65, 512}, .causal = true},
      {.name = "a scale of its own", .shape = {1, 2, 40, 40, 16}, .scale = 0.3},
      {.name = "a negative scale", .shape = {1, 1, 20, 20, 16}, .scale = -0.5},
      // What only an online softmax with a true running maximum survives.
      {.name = "large scores", .shape = {1, 2, 64, 200, 64}, .data = kLargeScores},
      {.name = "rising scores: a new maximum in each block",
       .shape = {1, 2, 40, 300, 16},
       .data = kRising},
      {.name = "very negative scores", .shape = {1, 1, 40, 200, 16}, .data = kVeryNegative},
      {.name = "one key a query", .shape = {1, 1, 40, 200, 64}, .data = kOneHot},
      {.name = "values that show which keys were counted",
       .shape = {1, 2, 50, 183, 32},
       .data = kSignature},
      {.name = "values that show which keys were counted (causal)",
       .shape = {1, 2, 183, 183, 32},
       .causal = true,
       .data = kSignature},
      {.name = "scores of -inf and rows of nothing else",
       .shape = {1, 2, 40, 200, 16},
       .data = kMinusInfinity},
      {.name = "equal scores of -1.2e9 (causal)",
       .shape = {1, 1, 40, 150, 16},
       .causal = true,
       .data = kLowest},
      {.name = "NaN in q and k",
       .shape = {1, 2, 140, 140, 8},
       .causal = true,
       .data = kNaNInScores},
      {.name = "NaN reaches the rows that see it",
       .shape = {2, 2, 140, 140, 8},
       .causal = true,
       .data = kNaN},
  };
  for (const DType type : {kFloat16, kBFloat16})
    for (DeviceCase problem : std::vector<DeviceCase>{
             {.name = "100", .shape = {2, 2, 100, 100, 40}},
             {.name = "causal: 200", .shape = {1, 2, 200, 200, 64}, .causal = true},
             {.name = "head_dim 128", .shape = {1, 1, 65, 100, 128}},
             {.name = "head_dim 256", .shape = {1, 1, 33, 65, 256}, .causal = true},
             {.name = "head_dim 512", .shape = {1, 1, 33, 65, 512}},
             {.name = "large scores", .shape = {1, 1, 64, 200, 64}, .data = kLargeScores},
             {.name = "one key a query", .shape = {1, 1, 40, 200, 64}, .data = kOneHot},
             {.name = "NaN reaches the rows that see it",
             .shape = {1, 1, 70, 70, 8},
             .causal = true,
             .data = kNaN},
         })
      cases.push_back(problem.of_type(type));
  harness::add_cases_of_both_passes(cases);
  return cases;
}

std::vector<DeviceCase> long_cases() {
  std::vector<DeviceCase> cases = harness::long_cases_of_both_passes();
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
