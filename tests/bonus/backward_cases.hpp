// The problems of the bonus' graded cases.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/registry.hpp"
#include "harness/attention_data.hpp"
#include "harness/padded_tensor.hpp"

namespace flash::bonus {

struct BackwardCase {
  std::string name;
  AttentionShape shape;
  bool causal = false;
  harness::Data data = harness::Data::kNormal;
  DType type = DType::kFloat32;
  harness::Layout layout = harness::Layout::kRowMajor;
  std::optional<double> scale = std::nullopt;
  const char* nan_in = nullptr;  // "q", "k" or "d_out": a NaN in row `nan_row` of the first head
  Index nan_row = 0;
  Index shift = 0;  // of the tensors' first element behind an aligned address, in elements
  int weight = 1;
  bool sampled = false;  // only the first, a middle and the last head are compared with the oracle
  std::optional<harness::Tolerance> tolerance = std::nullopt;

  AttentionOptions options() const { return {.causal = causal, .scale = scale}; }
};

// Whole blocks, no mask: what is run once for each gradient.
std::vector<BackwardCase> cases_of_a_gradient();

// Masks, ragged ends, strides and what else the whole backward pass has to survive.
std::vector<BackwardCase> cases_of_all_gradients();

// For GPUs only, since the emulator takes too long.
std::vector<BackwardCase> long_cases();

}  // namespace flash::bonus
