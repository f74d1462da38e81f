// The mistakes that the harness names, and their words.
#pragma once

#include <string>
#include <vector>

#include "harness/diagnosis/computation.hpp"

namespace flash::harness {

struct Mistake {
  std::string name;  // several with one name are ways to make it
  std::string text;  // what a student reads, as a clause: "no key is masked"
  int group;         // two mistakes at once are of two groups, and neither is of kAlone
  bool by_block;     // depends on the sizes of the blocks
  Computation how;
};
inline constexpr int kAlone = 0;  // the group of those that are not tried together with another one

// Those that can be told from what is right on this problem.
std::vector<Mistake> mistakes_of(const SeenForward& seen);
std::vector<Mistake> mistakes_of(const SeenBackward& seen);

}  // namespace flash::harness
