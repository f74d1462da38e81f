// The attention problems that several parts have: to add one, add it to a list.
#include "harness/cases/attention_case.hpp"

namespace flash::harness {

using enum Data;
using enum Layout;
using enum DType;

static const AttentionCase unaligned{
    .name = "tensors that are not aligned", .shape = {1, 2, 70, 70, 64}, .shift = 1};

std::vector<AttentionCase> cases_of_all_passes() {
  return {
      {.name = "one query and one key", .shape = {1, 1, 1, 1, 8}},
      {.name = "one query and many keys", .shape = {1, 2, 1, 300, 16}},
      {.name = "fewer queries than keys", .shape = {1, 2, 33, 170, 16}},
      {.name = "more queries than keys", .shape = {1, 2, 170, 33, 16}},
      {.name = "no keys", .shape = {1, 2, 5, 0, 8}},
      {.name = "head_dim 1", .shape = {2, 1, 17, 17, 1}},
      {.name = "causal: fewer queries than keys", .shape = {1, 2, 33, 170, 16}, .causal = true},
      {.name = "causal: more queries than keys", .shape = {1, 2, 170, 33, 16}, .causal = true},
      {.name = "equal scores", .shape = {1, 1, 33, 147, 16}, .data = kEqual},
      {.name = "neighbouring rows far apart", .shape = {1, 1, 40, 50, 16}, .data = kFarApart},
      {.name = "strides: padded rows", .shape = {2, 2, 20, 83, 16}, .layout = kPaddedRows},
      {.name = "strides: transposed", .shape = {2, 2, 20, 83, 16}, .layout = kTransposed},
      {.name = "strides: spread out", .shape = {2, 2, 20, 83, 16}, .layout = kSpread},
      {.name = "strides: one layout for each tensor", .shape = {2, 2, 9, 11, 4}, .layout = kMixed},
      {.name = "strides: one k for all heads", .shape = {2, 2, 9, 11, 4}, .layout = kBroadcast},
      {.name = "a scale of 0", .shape = {1, 1, 33, 40, 8}, .scale = 0},
      {.name = "causal: a scale of 1e-320 counts as 0",
       .shape = {1, 1, 20, 40, 8},
       .causal = true,
       .scale = 1e-320},
      {.name = "strides: interleaved heads",
       .shape = {2, 3, 70, 70, 16},
       .causal = true,
       .layout = kInterleavedHeads},
      unaligned,
  };
}

std::vector<AttentionCase> cases_of_forward_passes() {
  return {
      {.name = "a scale of its own", .shape = {1, 2, 40, 40, 16}, .scale = 0.3},
      {.name = "a negative scale", .shape = {1, 1, 20, 20, 16}, .scale = -0.5},
      {.name = "a negative scale with large scores",
       .shape = {1, 1, 20, 40, 16},
       .data = kLargeScores,
       .scale = -0.25},
      {.name = "causal: a scale of 1.2e24",
       .shape = {1, 1, 20, 40, 8},
       .causal = true,
       .data = kTiny,
       .scale = 0x1p80},
      {.name = "a scale of 8.3e-25", .shape = {1, 1, 20, 40, 8}, .data = kHuge, .scale = 0x1p-80},
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
      {.name = "scores of 1.7e38 and of -1.7e38",
       .shape = {1, 1, 20, 40, 8},
       .data = kEdge,
       .scale = 1},
      {.name = "equal scores of 1.7e38 (causal)",
       .shape = {1, 1, 20, 150, 16},
       .causal = true,
       .data = kEdge,
       .scale = -1},
      {.name = "NaN in q and k",
       .shape = {1, 2, 140, 140, 8},
       .causal = true,
       .data = kNaNInScores},
      {.name = "NaN reaches the rows that see it",
       .shape = {2, 2, 140, 140, 8},
       .causal = true,
       .data = kNaN},
  };
}

std::vector<AttentionCase> cases_on_device() {
  std::vector<AttentionCase> cases = cases_of_all_passes();
  const AttentionCase ragged{.name = "causal (ragged and strided)",
                             .shape = {1, 2, 70, 33, 16},
                             .causal = true,
                             .layout = kSpread};
  cases.insert(cases.end(),
               {{.name = "causal: head_dim 128", .shape = {1, 1, 100, 100, 128}, .causal = true},
                {.name = "causal: head_dim 256", .shape = {1, 1, 65, 65, 256}, .causal = true},
                unaligned.of_type(kFloat16),
                unaligned.of_type(kBFloat16),
                ragged.of_type(kFloat16),
                ragged.of_type(kBFloat16)});
  for (const Index sequence : {63, 64, 65, 100, 257})
    for (const bool causal : {false, true})
      cases.push_back(
          {.name = (causal ? "causal: sequence " : "sequence ") + std::to_string(sequence),
           .shape = {1, 1, sequence, sequence, 64},
           .causal = causal});
  return cases;
}

std::vector<AttentionCase> long_cases_on_device() {
  AttentionCase source{.name = "half: 8 x 8 x 2048",
                       .shape = {8, 8, 2048, 2048, 64},
                       .data = kHalfNormal,
                       .type = kFloat16,
                       .sampled = true,
                       .tolerance = kToleranceOfSources};
  AttentionCase causal = source;
  causal.name = "half: causal: 8 x 8 x 2048";
  causal.causal = true;
  return {{.name = kManyHeadsName, .shape = {65600, 1, 1, 3, 2}},
          source,
          causal,
          {.name = "bfloat16: causal: 2 x 8 x 2048",
           .shape = {2, 8, 2048, 2048, 64},
           .causal = true,
           .type = kBFloat16,
           .sampled = true}};
}

}  // namespace flash::harness
