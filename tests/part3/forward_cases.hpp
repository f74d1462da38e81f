// The problems of part 3's graded cases, which every forward pass on a device has to solve.
#pragma once

#include <vector>

#include "harness/cases/attention_case.hpp"

namespace flash::part3 {

std::vector<harness::AttentionCase> forward_cases();

// For GPUs only, since the emulator takes too long.
std::vector<harness::AttentionCase> long_cases();

}  // namespace flash::part3
