// What part 1's CUDA solutions are run on to compare a GPU's outputs with the emulator's, as one array. No process can have both
// backends: agreement_outputs.cpp is a program that writes the array to a file, agreement_test.cpp runs one for each backend.
#pragma once

#include <string>
#include <vector>

#include "common/inputs.hpp"

namespace flash::agreement {

struct FusedProblem {
  Index batch, d1, d2, d3;
  int block_1, block_2;
  Pattern pattern;  // of x

  Tensor<float, 3> x() const { return make_input<3>({batch, d1, d2}, pattern, 11); }
  Tensor<float, 3> v() const { return make_input<3>({batch, d2, d3}, Pattern::kNormal, 12); }
};

inline std::vector<FusedProblem> fused_problems() {
  return {{1, 16, 16, 16, 16, 16, Pattern::kNormal},      {3, 33, 47, 65, 16, 16, Pattern::kNormal},
          {2, 70, 100, 40, 64, 16, Pattern::kHalfNormal}, {1, 130, 190, 257, 64, 64, Pattern::kLargeLogits},
          {1, 65, 333, 129, 32, 32, Pattern::kRising},    {1, 17, 4099, 33, 16, 32, Pattern::kNormal}};
}

// Keys and values are as many as queries.
struct Attention1dProblem {
  Index n;
  int queries_per_block, keys_per_tile;

  Tensor<float, 1> q() const { return make_input<1>({n}, Pattern::kNormal, 21); }
  Tensor<float, 1> k() const { return make_input<1>({n}, Pattern::kNormal, 22); }
  Tensor<float, 1> v() const { return make_input<1>({n}, Pattern::kNormal, 23); }
};

inline std::vector<Attention1dProblem> attention_1d_problems() { return {{1, 32, 32}, {100, 32, 16}, {1000, 64, 100}}; }

inline constexpr int kNoGpu = 77;  // what the program returns where there is none

}  // namespace flash::agreement
