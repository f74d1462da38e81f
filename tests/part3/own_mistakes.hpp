// Mistakes that the forward kernel's tiles alone make possible.
#pragma once

#include <vector>

#include "harness/diagnosis/mistakes.hpp"

namespace flash::part3 {

void own_mistakes(std::vector<harness::Mistake>& known);

}  // namespace flash::part3
