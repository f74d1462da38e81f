// Implements attention_cases.hpp: to add a case, add it to the list.
#include "part2/attention_cases.hpp"

#include "part2_flash_cpu/flash_attention.hpp"

namespace flash::part2 {

using harness::AttentionCase;
using enum harness::Data;
using enum harness::Layout;
using enum DType;

std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases{
      {.name = "one block: 1 x 1 x 16 x 16", .shape = {1, 1, 16, 16, 16}},
      {.name = "ragged by one: 15", .shape = {1, 2, 15, 15, 24}},
      {.name = "ragged by one: 17", .shape = {1, 2, 17, 17, 24}},
      {.name = "batches and heads: 4 x 8", .shape = {4, 8, 32, 32, 16}},
      {.name = "a notebook of multi-head attention: 4 x 8 x 64 x 64",
       .shape = {4, 8, 64, 64, 64},
       .tolerance = harness::Tolerance{1e-5, 1e-4}},
      {.name = "the tolerance of the homework: 1e-3",
       .shape = {4, 1, 128, 128, 64},
       .tolerance = harness::Tolerance{1e-5, 1e-3}},
      {.name = "ragged: 100", .shape = {2, 3, 100, 100, 80}},
      {.name = "many keys: 257", .shape = {1, 2, 257, 257, 64}},
      {.name = "head_dim 128", .shape = {1, 1, 64, 64, 128}},
      {.name = "head_dim 512", .shape = {1, 1, 32, 32, 512}},
      {.name = "causal: 16", .shape = {1, 1, 16, 16, 16}, .causal = true},
      {.name = "causal: 100", .shape = {2, 2, 100, 100, 24}, .causal = true},
      {.name = "causal: 257", .shape = {1, 2, 257, 257, 16}, .causal = true},
      {.name = "blocks of 1", .shape = {1, 1, 9, 11, 8}, .blocks = {1, 1}},
      {.name = "blocks of 32 and 8",
       .shape = {1, 2, 70, 70, 16},
       .causal = true,
       .blocks = {32, 8}},
      {.name = "blocks of 8 and 32",
       .shape = {1, 2, 70, 70, 16},
       .causal = true,
       .blocks = {8, 32}},
      {.name = "blocks larger than everything", .shape = {1, 1, 20, 30, 8}, .blocks = {1000, 1000}},
      {.name = "blocks of 300 queries", .shape = {1, 1, 310, 20, 8}, .blocks = {300, 16}},
      {.name = "33000 keys", .shape = {1, 1, 1, 33000, 2}},
      {.name = "66000 queries", .shape = {1, 1, 66000, 2, 1}},
      {.name = "66000 batches", .shape = {66000, 1, 1, 2, 1}},
      {.name = "double: 100", .shape = {2, 2, 100, 100, 24}, .type = kFloat64},
      {.name = "double: causal (ragged and strided)",
       .shape = {1, 2, 70, 33, 16},
       .causal = true,
       .type = kFloat64,
       .layout = kSpread},
      {.name = "double: large scores",
       .shape = {1, 1, 64, 100, 64},
       .data = kLargeScores,
       .type = kFloat64},
  };
  const std::vector<AttentionCase> also_in_16_bits{
      {.name = "ragged: 100", .shape = {2, 3, 100, 100, 80}},
      {.name = "many keys: 1000", .shape = {1, 1, 20, 1000, 16}},
      {.name = "causal (ragged and strided)",
       .shape = {1, 2, 70, 33, 16},
       .causal = true,
       .layout = kSpread},
  };
  for (const DType type : {kFloat16, kBFloat16})
    for (const AttentionCase& problem : also_in_16_bits) cases.push_back(problem.of_type(type));
  for (const auto& more : {harness::cases_of_forward_passes(), harness::cases_of_all_passes()})
    cases.insert(cases.end(), more.begin(), more.end());
  const auto [queries, keys] = AttentionBlocks();
  for (AttentionCase& problem : cases)
    if (problem.blocks.keys == 0) problem.blocks = {queries, keys};
  return cases;
}

}  // namespace flash::part2
