// The graded cases of task 1.A, the same for the CPU and the GPU: a case is a problem, its inputs and its bound.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/inputs.hpp"
#include "harness/graded_case.hpp"
#include "harness/padded_tensor.hpp"

namespace flash::part1 {

struct SoftmaxMatmulCase {
  std::string name;
  Index batch = 1, d1 = 1, d2 = 1, d3 = 1;
  Index block_1 = 16, block_2 = 16;
  Pattern x = Pattern::kNormal;
  Pattern v = Pattern::kNormal;
  harness::Layout layout = harness::Layout::kRowMajor;  // of x, v and out
  int weight = 1;                                       // the case's share of the points
  bool measures_memory = false;                         // the extra memory has to stay below fused_extra_bytes()
};

std::vector<SoftmaxMatmulCase> softmax_matmul_cases();

// What the function under test does with a case: reads x and v, writes out, and gives the extra bytes it had in use at its peak.
using RunFused = std::function<std::size_t(const SoftmaxMatmulCase&, harness::PaddedTensor& x, harness::PaddedTensor& v,
                                           harness::PaddedTensor& out)>;

// Runs one case: out against the oracle under softmax_matmul_bound(), nothing written around it, x and v as they were, and the
// memory where the case says so.
harness::Verdict judge(const SoftmaxMatmulCase& problem, std::uint64_t seed, const RunFused& run);

// `judge` for each of softmax_matmul_cases().
std::vector<harness::GradedCase> graded_softmax_matmul(const RunFused& run);

}  // namespace flash::part1
