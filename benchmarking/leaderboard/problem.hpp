// What a board measures: problems, each with one pass or two, inputs that are new for each call,
// and the check of every result against the float64 oracle.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "benchmarking/program.hpp"
#include "common/registry.hpp"
#include "harness/judge/timed.hpp"

namespace flash::leaderboard {

// One call that is timed, "forward" or "backward", and the least work of it: the products'
// operations, and the bytes of its inputs and outputs.
struct Pass {
  std::string name;
  double flops, bytes;
};

class Problem {
 public:
  explicit Problem(std::vector<Pass> of_problem) : passes(std::move(of_problem)) {}
  virtual ~Problem() = default;

  const std::vector<Pass> passes;

  // New inputs from the seed, and what the results have to be.
  virtual void draw(std::uint64_t seed) = 0;
  // The call of a pass on those inputs; its outputs are full of NaN.
  virtual grading::Call call(std::size_t pass) = 0;
  // What is wrong with the results that the call left, in one line; "" where they are right.
  virtual std::string wrong(std::size_t pass) const = 0;
};

// What in a result is farther from the wanted value than bound * magnitude + absolute + relative *
// |value|. NaN is.
struct Mistakes {
  std::int64_t count = 0, first = 0;
  double got = 0, wanted = 0;  // of the first
};

// What a board measures on each of its problems.
struct Asked {
  std::string kind = "attention", dtype = "float32";
  std::size_t passes = 2;  // the first ones: 1 is the forward pass alone
};

// A board's name of a problem, with or without ":causal" behind the sizes:
//   attention        "8x1x256x64:causal", batch x heads x sequence x head_dim
//   softmax_matmul   "1x2048x64x512", batch x d1 x d2 x d3
// Throws ArgumentError.
std::unique_ptr<Problem> make_problem(const Asked& asked, const std::string& name);

// The first `count` passes. `element` is the bytes of one.
std::vector<Pass> attention_passes(const AttentionProblem& problem, std::size_t count,
                                   std::size_t element);
std::vector<Pass> softmax_matmul_passes(const SoftmaxMatmulShape& shape);

// ---- What is of the host or of a GPU: host.cpp and gpu.cpp define it, and a program has one -----

std::unique_ptr<Problem> make_problem(const AttentionProblem& problem, std::size_t passes);
std::unique_ptr<Problem> make_problem(const SoftmaxMatmulShape& shape);

// Where the tensors of its calls lie.
std::unique_ptr<grading::CallMemory> memory_of_calls();

// What the device does at best.
struct Rates {
  double peak_gflops = 0, bandwidth_gbs = 0;
};
Rates rates_now();

}  // namespace flash::leaderboard
