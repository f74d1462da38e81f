// The problems of part 2's graded cases. The forward and the backward task run the same problems.
#pragma once

#include <vector>

#include "harness/cases/attention_case.hpp"

namespace flash::part2 {

std::vector<harness::AttentionCase> attention_cases();

}  // namespace flash::part2
