// Part 2's ladder as bench_attention sees it: its rungs, and the ceiling that comes with them. A program without the ladder has
// neither: the rungs stand on the solution, so the skeleton's program cannot link them, and a release for students does not
// have them.
#pragma once

#include <string>

#include "common/attention_registry.hpp"

namespace flash {

// Enters the rungs, where there are some.
void register_ladder(AttentionRegistry& registry);

// What ceiling_gflops() measures, in words; empty where there is no ladder. Throws what ladder_isa() and ladder_threads() do.
std::string ceiling_name();

// The most that the processor can do, in GFLOP/s, measured now, in 2 ms; 0 where there is no ladder.
double ceiling_gflops(DType dtype);

// Gives back what the rungs keep from call to call, so that the next call's memory is all that it needs.
void release_ladder_memory();

}  // namespace flash
