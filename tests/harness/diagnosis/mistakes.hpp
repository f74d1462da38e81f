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

// Two mistakes are tried at once only if their groups differ, and neither group is kAlone.
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
  bool makes_nan = false;    // out of ordinary numbers: not a NaN of the inputs passed on
};

// In a block of keys, `rows` rows that lie `apart` share one largest score; 0: all rows of a block
// of queries do. Rows that come later count with their largest score in the block of keys before,
// unless all rows are computed `at_once`.
std::vector<Change> shared_maximum(Index rows, Index apart, bool at_once);

// The record of this name.
Mistake& named(const std::string& name, std::vector<Mistake>& known);

// The mistakes that can show on this problem.
std::vector<Mistake> mistakes_of(const SeenForward& seen);
std::vector<Mistake> mistakes_of(const SeenBackward& seen);

}  // namespace flash::harness
