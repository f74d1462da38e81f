// How fast this processor can multiply and add: no function can be faster.
#pragma once

#include "common/registry.hpp"

namespace flash {

// Multiplications and additions a second on `threads` threads together, in GFLOP/s: independent
// fused multiply-adds on registers, for about `milliseconds`, in the widest vectors that the
// processor has. dtype is kFloat32 or kFloat64.
double native_peak_gflops(DType dtype, int threads, double milliseconds);

// Bytes of such a vector.
int native_vector_bytes();

}  // namespace flash
