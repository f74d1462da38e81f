// Implements device_attention_registry.hpp.
#include "benchmarking/device_attention_registry.hpp"

#ifdef FLASH_HAVE_BONUS
#include "bonus_backward/implementations.hpp"
#else
#include "part3_flash_cuda/implementations.hpp"
#endif
#ifdef FLASH_HAVE_BONUS_LADDER
#include "bonus_backward/ladder/implementations.hpp"
#endif

namespace flash {

const DeviceAttentionRegistry& device_attention_registry() {
  static const DeviceAttentionRegistry made = [] {
    DeviceAttentionRegistry registry;
    register_standard_attention_cuda(registry);
#ifdef FLASH_HAVE_BONUS
    register_bonus_attention(registry);
#else
    register_part3_attention(registry);
#endif
#ifdef FLASH_HAVE_BONUS_LADDER
    register_bonus_ladder(registry);
#endif
    return registry;
  }();
  return made;
}

}  // namespace flash
