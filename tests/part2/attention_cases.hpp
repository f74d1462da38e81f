// The problems of part 2's graded cases. The forward and the backward task run the same problems.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/attention_data.hpp"
#include "harness/graded_case.hpp"
#include "harness/padded_tensor.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash::part2 {

using harness::AttentionInputs;
using harness::Data;
using harness::Tolerance;
using harness::wrong_in;

struct AttentionCase {
  std::string name = {};
  AttentionShape shape;
  bool causal = false;
  Data data = Data::kNormal;
  AttentionBlocks blocks = {};
  harness::Layout layout = harness::Layout::kRowMajor;
  std::optional<double> scale = std::nullopt;
  bool float64 = false;
  // Asked for beside the bound that follows from the precision.
  std::optional<Tolerance> tolerance = std::nullopt;

  AttentionOptions options() const { return {.causal = causal, .scale = scale}; }
  std::string requirement() const {
    return harness::requirement_of(shape, {blocks.queries, blocks.keys}, data, options(),
                                   layout != harness::Layout::kRowMajor, float64, false);
  }
};

std::vector<AttentionCase> attention_cases();

template <class T>
AttentionInputs<T> make_inputs(const AttentionCase& problem, std::uint64_t seed) {
  return harness::make_inputs<T>(problem.shape, problem.data, seed);
}

}  // namespace flash::part2
