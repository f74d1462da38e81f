// Shows a wrong result with small numbers: the smallest problem on which the code under test is
// still wrong, with the steps of the formula as one computes them by hand, and what is expected
// beside what was found.
#pragma once

#include <functional>
#include <string>

#include "harness/diagnosis/diagnosis.hpp"

namespace flash::harness {

// "" where no small problem shows it. `again` runs the code under test. At most 100 columns wide.
// With `only`, the sizes of a step, no others are tried: they may need functions of later steps.
template <class Seen>
std::string with_small_numbers(const std::function<Seen(const Probe&)>& again,
                               const AttentionShape* only = nullptr);

}  // namespace flash::harness
