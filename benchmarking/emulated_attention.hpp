// The kernel that bench_emulator runs.
#pragma once

#include "common/export.hpp"

namespace flash {

// softmax(q k^T / 8) v for each head. q, k, v, out: device memory, (heads, sequence, 64), row-major.
FLASH_EXPORT void emulated_attention(const float* q, const float* k, const float* v, float* out, int heads, int sequence);

}  // namespace flash
