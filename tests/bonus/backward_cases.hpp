// The problems of the bonus' graded cases, which every backward pass on a device has to solve.
#pragma once

#include <vector>

#include "harness/cases/attention_case.hpp"

namespace flash::bonus {

// Whole blocks, no mask: what is run once for each gradient.
std::vector<harness::AttentionCase> cases_of_a_gradient();

// Masks, ragged ends, strides and what else the whole backward pass has to survive.
std::vector<harness::AttentionCase> cases_of_all_gradients();

// For GPUs only, since the emulator takes too long.
std::vector<harness::AttentionCase> long_cases();

}  // namespace flash::bonus
