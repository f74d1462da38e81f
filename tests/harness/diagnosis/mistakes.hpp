// The mistakes that the harness names. A mistake is one record: its name, its words, the kind that
// its hint belongs to (hints.toml), and the step of the computation (common/steps.hpp) that it
// replaces by another one. To add one, add its record to mistakes.cpp, and a program that has it to
// tests/wrong/.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "common/steps.hpp"
#include "harness/diagnosis/seen.hpp"

namespace flash::harness {

// What is done to the steps as they are right.
using Change = std::function<void(Steps&)>;

template <class Function>
Change replace(Step<Function> Steps::*step, std::type_identity_t<Step<Function>> by) {
  return [=](Steps& steps) { steps.*step = by; };
}

// Two mistakes at once are of two groups, and neither of kAlone.
enum class Group {
  kAlone,
  kScale,
  kMask,
  kOnline,
  kDivision,
  kKeys,
  kLse,
  kIndexing,
  kGradient,
  kSum,
  kOutput
};

struct Mistake {
  std::string name;
  std::string text;  // what a student reads, as a clause: "no key is masked"
  std::string kind;
  Group group;
  bool by_block;             // whether it depends on the sizes of the blocks
  std::vector<Change> ways;  // to make it
  bool makes_nan = false;    // from numbers, and does not pass one on
};

// The largest score in a block of keys is that of `rows` rows, which lie `apart`; 0: of a block of
// queries. Those that come later have that of the block of keys before, unless all are computed at
// once.
std::vector<Change> shared_maximum(Index rows, Index apart, bool at_once);

// The record of this name.
Mistake& named(const std::string& name, std::vector<Mistake>& known);

// Those that can be told from what is right on this problem.
std::vector<Mistake> mistakes_of(const SeenForward& seen);
std::vector<Mistake> mistakes_of(const SeenBackward& seen);

}  // namespace flash::harness
