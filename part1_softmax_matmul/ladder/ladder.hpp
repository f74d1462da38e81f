// The ladder of part 1: faster versions of fused_softmax_matmul, one numbered file a step, each with the story of its change.
//
// To add a rung: write N_name.cpp with the function in a namespace of its own, enter it in ladder.cpp, and list the file in
// ../CMakeLists.txt. tests/part1/ladder_test.cpp then runs every graded case on it, and bench_ladder times it beside the others.
#pragma once

#include "common/registry.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash {

// The contract of fused_softmax_matmul.
using FusedCpu = void(TensorView<const float, 3> x, TensorView<const float, 3> v, TensorView<float, 3> out, Index block_1,
                      Index block_2);

// Enters the CPU rungs, slowest first.
FLASH_EXPORT void register_fused_cpu_ladder(Registry<FusedCpu>& registry);

}  // namespace flash
