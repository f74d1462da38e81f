// What there is of attention on a GPU: one registry, for the benchmark and for the comparison with PyTorch.
#pragma once

#include "part3_flash_cuda/device_attention.hpp"

namespace flash {

// "standard", and what the parts of this build enter. Made once, lives as long as the program.
const DeviceAttentionRegistry& device_attention_registry();

}  // namespace flash
