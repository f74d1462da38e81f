// What a board measures: problems, each with one pass or two, inputs that are new for each turn,
// and the check of every element of every result against the float64 oracle.
#pragma once

#include <memory>
#include <string>

#include "benchmarking/leaderboard/draw.hpp"
#include "common/registry.hpp"
#include "harness/judge/timed.hpp"

namespace flash::leaderboard {

class Problem {
 public:
  virtual ~Problem() = default;

  // New inputs from the key, and what the results have to be. Graded kinds of data are in a quarter
  // of the parts, or in each. The backward pass gets out and lse from the oracle, so that each pass
  // is measured on its own.
  virtual void draw(const Cipher& cipher, bool in_each_part) = 0;
  // The call of a pass, 0 or 1, on those inputs; its outputs are full of NaN.
  virtual grading::Call call(std::size_t pass) = 0;
  // What is wrong with the results that the call left, in one line; "" where they are right.
  virtual std::string wrong(std::size_t pass) const = 0;
};

// ---- What differs between host and GPU: a program has one of host.cpp and gpu.cpp ---------------

// `finite`: without -inf and NaN, which not all rungs take.
std::unique_ptr<Problem> make_problem(const AttentionProblem& problem, bool with_backward,
                                      bool finite);
std::unique_ptr<Problem> make_problem(const SoftmaxMatmulShape& shape, bool finite);

// Where the tensors of its calls lie.
std::unique_ptr<grading::CallMemory> memory_of_calls();

// The highest rates that the device reaches.
struct Rates {
  double peak_gflops = 0, bandwidth_gbs = 0;
};
Rates rates_now();

}  // namespace flash::leaderboard
