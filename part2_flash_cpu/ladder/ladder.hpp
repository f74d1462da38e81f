// The ladder of part 2: how fast a CPU can do attention, forward and backward, one numbered file a step.
//
// To add a rung: ../../README.md has the steps.
#pragma once

#include <string>

#include "common/attention_registry.hpp"

namespace flash {

// Enters the rungs, slowest first.
FLASH_EXPORT void register_attention_ladder(AttentionRegistry& registry);

// The instruction set that the rungs from 2 on use: "avx512", "avx2" or "baseline". The best that the processor has, or the
// environment's FLASH_ISA. Throws ArgumentError when that is none of them, and Unsupported when the processor does not have it.
FLASH_EXPORT std::string ladder_isa();

// How many multiplications and additions a second the processor can do in vectors of that instruction set, on ladder_threads()
// threads at once, in GFLOP/s: independent fused multiply-adds on registers, for about `milliseconds`. The ceiling of
// everything in this part. dtype is kFloat32 or kFloat64.
FLASH_EXPORT double fma_peak_gflops(DType dtype, double milliseconds = 2);

// Gives back what the rungs from 2 on keep to work in from call to call: this thread's memory, and the waiting threads with theirs.
FLASH_EXPORT void release_kept_memory();

}  // namespace flash
