// What the ladder of the bonus enters in the registry of attention on a GPU.
#pragma once

#include "bonus_backward/ladder/ladder.hpp"
#include "part3_flash_cuda/implementations.hpp"

namespace flash {

inline constexpr DeviceAttentionFunctions kDeviceFlashOnePass{
    .float32 = kDeviceFlash<float, ladder_1_one_pass::flash_attention_backward_cuda<float>>,
    .float16 = kDeviceFlash<Half, ladder_1_one_pass::flash_attention_backward_cuda<Half>>,
    .bfloat16 = kDeviceFlash<BFloat16, ladder_1_one_pass::flash_attention_backward_cuda<BFloat16>>};

// Enters the rungs, slowest first.
inline void register_bonus_ladder(DeviceAttentionRegistry& registry) {
  register_part3_attention(registry, "flash_1_one_pass", kDeviceFlashOnePass, "head_dim at most 256");
}

}  // namespace flash
