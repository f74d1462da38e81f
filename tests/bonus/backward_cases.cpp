// Implements backward_cases.hpp. Of float with heads of up to 64 a thread block takes 128 rows of one side and 32 of the other
// at a time, where shared memory allows.
#include "bonus/backward_cases.hpp"

namespace flash::bonus {

using harness::Data;
using harness::Layout;

std::vector<BackwardCase> cases_of_a_gradient() {
  return {
      {.name = "one block: 128 x 128", .shape = {1, 1, 128, 128, 64}, .weight = 30},
      {.name = "two blocks of keys: 128 x 256", .shape = {1, 1, 128, 256, 64}, .weight = 7},
      {.name = "two blocks of queries: 256 x 128", .shape = {1, 1, 256, 128, 64}, .weight = 7},
      {.name = "batches and heads: 3 x 2", .shape = {3, 2, 32, 64, 32}, .weight = 14},
      {.name = "head_dim 128", .shape = {1, 1, 64, 64, 128}, .weight = 6},
      {.name = "head_dim 256", .shape = {1, 1, 32, 32, 256}, .weight = 6},
      {.name = "a scale of its own", .shape = {1, 1, 64, 64, 32}, .scale = -0.3, .weight = 6},
      {.name = "large scores", .shape = {1, 1, 64, 128, 64}, .data = Data::kLargeScores, .weight = 6},
      {.name = "very negative scores", .shape = {1, 1, 64, 64, 32}, .data = Data::kVeryNegative, .weight = 6},
      {.name = "one key a query", .shape = {1, 1, 64, 64, 64}, .data = Data::kOneHot, .weight = 6},
      {.name = "half: 128 x 64", .shape = {1, 1, 128, 64, 64}, .type = DType::kFloat16, .weight = 6},
      {.name = "bfloat16: 128 x 64", .shape = {1, 1, 128, 64, 64}, .type = DType::kBFloat16, .weight = 6},
  };
}

std::vector<BackwardCase> cases_of_all_gradients() {
  std::vector<BackwardCase> cases{
      {.name = "one query and one key", .shape = {1, 1, 1, 1, 8}},
      {.name = "one query and many keys", .shape = {1, 2, 1, 300, 16}},
      {.name = "many queries and one key", .shape = {1, 2, 300, 1, 16}},
      {.name = "fewer queries than keys", .shape = {1, 2, 33, 170, 16}},
      {.name = "more queries than keys", .shape = {1, 2, 170, 33, 16}},
      {.name = "no keys", .shape = {1, 2, 5, 0, 8}},
      {.name = "head_dim 1", .shape = {2, 1, 17, 17, 1}},
      {.name = "head_dim 40", .shape = {1, 2, 65, 100, 40}},
      {.name = "head_dim 100", .shape = {1, 1, 65, 70, 100}},
      {.name = "head_dim 200", .shape = {1, 1, 33, 40, 200}},
      {.name = "causal: fewer queries than keys", .shape = {1, 2, 33, 170, 16}, .causal = true},
      {.name = "causal: more queries than keys", .shape = {1, 2, 170, 33, 16}, .causal = true},
      {.name = "causal: head_dim 128", .shape = {1, 1, 100, 100, 128}, .causal = true},
      {.name = "causal: head_dim 256", .shape = {1, 1, 65, 65, 256}, .causal = true},
      {.name = "rising scores: a new maximum in each block", .shape = {1, 2, 40, 300, 16}, .data = Data::kRising},
      {.name = "equal scores", .shape = {1, 1, 33, 147, 16}, .data = Data::kEqual},
      {.name = "very negative scores (ragged)", .shape = {1, 1, 40, 200, 16}, .data = Data::kVeryNegative},
      // A NaN reaches the gradients that see it and no others: none of it is lost, and nowhere a 0 is multiplied by it.
      {.name = "NaN in v", .shape = {2, 2, 140, 140, 8}, .causal = true, .data = Data::kNaN},
      {.name = "NaN in q", .shape = {1, 2, 140, 140, 8}, .causal = true, .nan_in = "q", .nan_row = 70},
      {.name = "NaN in k", .shape = {1, 2, 140, 140, 8}, .causal = true, .nan_in = "k", .nan_row = 70},
      {.name = "NaN in d_out", .shape = {1, 2, 140, 140, 8}, .causal = true, .nan_in = "d_out", .nan_row = 70},
      {.name = "NaN in a key that no query sees", .shape = {1, 2, 150, 250, 8}, .causal = true, .nan_in = "k", .nan_row = 155},
      {.name = "strides: padded rows", .shape = {2, 2, 20, 83, 16}, .layout = Layout::kPaddedRows},
      {.name = "strides: transposed", .shape = {2, 2, 20, 83, 16}, .layout = Layout::kTransposed},
      {.name = "strides: spread out", .shape = {2, 2, 20, 83, 16}, .layout = Layout::kSpread},
      {.name = "strides: interleaved heads", .shape = {2, 3, 70, 70, 16}, .causal = true, .layout = Layout::kInterleavedHeads},
      {.name = "tensors that are not aligned", .shape = {1, 2, 70, 70, 64}, .shift = 1},
  };
  for (const Index sequence : {63, 64, 65, 100, 257})
    for (const bool causal : {false, true})
      cases.push_back({
          .name = (causal ? "causal: sequence " : "sequence ") + std::to_string(sequence),
          .shape = {1, 1, sequence, sequence, 64},
          .causal = causal,
      });
  for (const DType type : {DType::kFloat16, DType::kBFloat16}) {
    const std::string name = type == DType::kFloat16 ? "half: " : "bfloat16: ";
    cases.push_back({.name = name + "causal (ragged and strided)",
                     .shape = {1, 2, 70, 33, 16},
                     .causal = true,
                     .type = type,
                     .layout = Layout::kSpread});
    cases.push_back({.name = name + "causal: 150", .shape = {1, 2, 150, 150, 64}, .causal = true, .type = type});
    cases.push_back({.name = name + "head_dim 128", .shape = {1, 1, 33, 40, 128}, .type = type});
    cases.push_back({.name = name + "head_dim 256", .shape = {1, 1, 33, 40, 256}, .causal = true, .type = type});
    cases.push_back({.name = name + "tensors that are not aligned", .shape = {1, 1, 70, 70, 64}, .type = type, .shift = 1});
  }
  return cases;
}

std::vector<BackwardCase> long_cases() {
  // The problem that one of the course's sources tries its kernels on, at its tolerance beside ours; more heads than a grid is
  // tall or deep (65535); sequences of many blocks.
  const harness::Tolerance of_sources{1e-2, 0};
  const AttentionShape source{8, 8, 2048, 2048, 64};
  return {
      {.name = "more heads than a grid is tall: 65600 x 1 x 3", .shape = {65600, 1, 1, 3, 2}},
      {.name = "long: 2 x 3000 x 3000", .shape = {1, 2, 3000, 3000, 64}},
      {.name = "long and causal: 2 x 3000 x 3000", .shape = {1, 2, 3000, 3000, 64}, .causal = true},
      {.name = "half: 8 x 8 x 2048",
       .shape = source,
       .data = Data::kHalfNormal,
       .type = DType::kFloat16,
       .sampled = true,
       .tolerance = of_sources},
      {.name = "half: causal: 8 x 8 x 2048",
       .shape = source,
       .causal = true,
       .data = Data::kHalfNormal,
       .type = DType::kFloat16,
       .sampled = true,
       .tolerance = of_sources},
      {.name = "bfloat16: causal: 2 x 8 x 2048",
       .shape = {2, 8, 2048, 2048, 64},
       .causal = true,
       .type = DType::kBFloat16,
       .sampled = true},
  };
}

}  // namespace flash::bonus
