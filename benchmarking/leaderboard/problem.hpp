// What a board measures: problems, each with one pass or two, inputs that are new for each call,
// and the check of every result against the float64 oracle.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "benchmarking/program.hpp"
#include "grading/judge/remote.hpp"

namespace flash::leaderboard {

class Problem {
 public:
  virtual ~Problem() = default;

  // Of one call that is timed: "forward", "backward".
  virtual Strings passes() const = 0;
  // The least work of a pass: the products' operations, and the bytes of its inputs and outputs.
  virtual double flops(std::size_t pass) const = 0;
  virtual double bytes(std::size_t pass) const = 0;

  // New inputs from the seed, and what the results have to be.
  virtual void draw(std::uint64_t seed) = 0;
  // The call of a pass on those inputs; its outputs are full of NaN.
  virtual grading::Call call(std::size_t pass) = 0;
  // What is wrong with the results that the call left, in one line; "" where they are right.
  virtual std::string wrong(std::size_t pass) const = 0;
};

// A board's name of a problem, with or without ":causal" behind the sizes:
//   attention        "8x1x256x64:causal", batch x heads x sequence x head_dim
//   softmax_matmul   "1x2048x64x512", batch x d1 x d2 x d3
// Throws ArgumentError.
std::unique_ptr<Problem> make_problem(const std::string& kind, const std::string& name);

// "1x2x3x4" as four numbers of at least 1; throws ArgumentError.
Shape<4> sizes_in(const std::string& text);

std::unique_ptr<Problem> make_attention(const Shape<4>& sizes, bool causal);
std::unique_ptr<Problem> make_softmax_matmul(const Shape<4>& sizes);

}  // namespace flash::leaderboard
