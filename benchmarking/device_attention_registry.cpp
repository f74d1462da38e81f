// Implements device_attention_registry.hpp.
#include "benchmarking/device_attention_registry.hpp"

#include "part3_flash_cuda/implementations.hpp"

namespace flash {

const DeviceAttentionRegistry& device_attention_registry() {
  static const DeviceAttentionRegistry made = [] {
    DeviceAttentionRegistry registry;
    register_standard_attention_cuda(registry);
    register_part3_attention(registry);
    return registry;
  }();
  return made;
}

}  // namespace flash
