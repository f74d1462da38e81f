// Implements attention_cases.hpp: to add a case, add it to the list.
#include "part2/attention_cases.hpp"

namespace flash::part2 {

using harness::Layout;

std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases{
      {.name = "one block: 1 x 1 x 16 x 16", .shape = {1, 1, 16, 16, 16}},
      {.name = "one query and one key", .shape = {1, 1, 1, 1, 8}},
      {.name = "head_dim 1", .shape = {2, 1, 17, 17, 1}},
      {.name = "ragged by one: 15", .shape = {1, 2, 15, 15, 24}},
      {.name = "ragged by one: 17", .shape = {1, 2, 17, 17, 24}},
      {.name = "batches and heads: 4 x 8", .shape = {4, 8, 32, 32, 16}, .weight = 2},
      {.name = "a notebook of multi-head attention: 4 x 8 x 64 x 64",
       .shape = {4, 8, 64, 64, 64},
       .tolerance = Tolerance{1e-5, 1e-4}},
      {.name = "the tolerance of the homework: 1e-3", .shape = {4, 1, 128, 128, 64}, .tolerance = Tolerance{1e-5, 1e-3}},
      {.name = "ragged: 100", .shape = {2, 3, 100, 100, 80}, .weight = 2},
      {.name = "many keys: 257", .shape = {1, 2, 257, 257, 64}, .weight = 2},
      {.name = "head_dim 128", .shape = {1, 1, 64, 64, 128}},
      {.name = "head_dim 512", .shape = {1, 1, 32, 32, 512}},
      {.name = "fewer queries than keys", .shape = {2, 2, 33, 70, 16}},
      {.name = "more queries than keys", .shape = {2, 2, 70, 33, 16}},
      {.name = "one query and many keys", .shape = {1, 2, 1, 100, 16}},
      {.name = "no keys", .shape = {1, 2, 5, 0, 8}},
      {.name = "causal: 16", .shape = {1, 1, 16, 16, 16}, .causal = true, .weight = 2},
      {.name = "causal: 100", .shape = {2, 2, 100, 100, 24}, .causal = true, .weight = 2},
      {.name = "causal: 257", .shape = {1, 2, 257, 257, 16}, .causal = true},
      {.name = "causal: fewer queries than keys", .shape = {1, 2, 33, 70, 16}, .causal = true},
      {.name = "causal: more queries than keys", .shape = {1, 2, 70, 33, 16}, .causal = true},
      {.name = "blocks of 1", .shape = {1, 1, 9, 11, 8}, .blocks = {1, 1}},
      {.name = "blocks of 32 and 8", .shape = {1, 2, 70, 70, 16}, .causal = true, .blocks = {32, 8}},
      {.name = "blocks of 8 and 32", .shape = {1, 2, 70, 70, 16}, .causal = true, .blocks = {8, 32}},
      {.name = "blocks larger than everything", .shape = {1, 1, 20, 30, 8}, .blocks = {1000, 1000}},
      {.name = "a scale of its own", .shape = {1, 2, 40, 40, 16}, .scale = 0.3},
      {.name = "a negative scale", .shape = {1, 1, 20, 20, 16}, .scale = -0.5},
      {.name = "large scores", .shape = {1, 2, 64, 100, 64}, .data = Data::kLargeScores, .weight = 2},
      {.name = "rising scores: a new maximum in each block", .shape = {1, 2, 40, 100, 16}, .data = Data::kRising, .weight = 2},
      {.name = "very negative scores", .shape = {1, 1, 40, 100, 16}, .data = Data::kVeryNegative},
      {.name = "equal scores", .shape = {1, 1, 33, 47, 16}, .data = Data::kEqual},
      {.name = "one key a query", .shape = {1, 1, 40, 100, 64}, .data = Data::kOneHot},
      {.name = "values that show which keys were counted", .shape = {1, 2, 50, 83, 32}, .data = Data::kSignature},
      {.name = "values that show which keys were counted (causal)",
       .shape = {1, 2, 83, 83, 32},
       .causal = true,
       .data = Data::kSignature},
      {.name = "scores of -inf and rows of nothing else", .shape = {1, 2, 40, 100, 16}, .data = Data::kMinusInfinity},
      {.name = "NaN reaches the rows that see it", .shape = {2, 2, 40, 40, 8}, .causal = true, .data = Data::kNaN},
      {.name = "strides: padded rows", .shape = {2, 2, 20, 33, 16}, .layout = Layout::kPaddedRows},
      {.name = "strides: transposed", .shape = {2, 2, 20, 33, 16}, .layout = Layout::kTransposed},
      {.name = "strides: spread out", .shape = {2, 2, 20, 33, 16}, .layout = Layout::kSpread},
      {.name = "strides: interleaved heads", .shape = {2, 3, 20, 33, 16}, .layout = Layout::kInterleavedHeads},
      {.name = "double: 100", .shape = {2, 2, 100, 100, 24}, .float64 = true},
      {.name = "double: causal (ragged and strided)",
       .shape = {1, 2, 70, 33, 16},
       .causal = true,
       .layout = Layout::kSpread,
       .float64 = true},
      {.name = "double: large scores", .shape = {1, 1, 64, 100, 64}, .data = Data::kLargeScores, .float64 = true},
  };
  return cases;
}

}  // namespace flash::part2
