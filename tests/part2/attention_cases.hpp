// The problems of part 2's graded cases. The forward and the backward task run the same problems.
#pragma once

#include <vector>

#include "harness/cases/attention_case.hpp"

namespace flash::part2 {

std::vector<harness::AttentionCase> attention_cases();

// use(T()) for the element type of a case.
template <class Use>
auto with_type(DType type, Use use) {
  return type == DType::kFloat64 ? use(double()) : harness::with_type(type, use);
}

}  // namespace flash::part2
