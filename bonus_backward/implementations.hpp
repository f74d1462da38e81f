// What the bonus enters in the registry of attention on a GPU (part3_flash_cuda/device_attention.hpp): part 3's forward pass,
// each time with another backward pass.
#pragma once

#include "bonus_backward/flash_backward_cuda.hpp"
#include "part3_flash_cuda/implementations.hpp"

namespace flash {

// The best backward pass that there is: the tiled one, of skeleton or solution; the plain one for a wider head, and until the
// other is written, so that who has part 3 has "flash".
template <class T>
void best_flash_backward(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                         TensorView<const T, 4> out, TensorView<const float, 3> lse, TensorView<const T, 4> d_out,
                         TensorView<T, 4> d_q, TensorView<T, 4> d_k, TensorView<T, 4> d_v, const AttentionOptions& options,
                         Stream stream) {
  if (q.extent(3) <= kFlashBackwardMaxHeadDim) try {
      return flash_attention_backward_cuda<T>(q, k, v, out, lse, d_out, d_q, d_k, d_v, options, stream);
    } catch (const NotYetImplemented&) {
    }
  plain_attention_backward_cuda<T>(q, k, v, out, lse, d_out, d_q, d_k, d_v, options, stream);
}

inline constexpr DeviceAttentionFunctions kDeviceFlashTiled{.float32 = kDeviceFlash<float, best_flash_backward<float>>,
                                                            .float16 = kDeviceFlash<Half, best_flash_backward<Half>>,
                                                            .bfloat16 = kDeviceFlash<BFloat16, best_flash_backward<BFloat16>>};

// In the place of register_part3_attention(): "flash" with the tiled backward pass, and "flash_plain_backward" beside it.
inline void register_bonus_attention(DeviceAttentionRegistry& registry) {
  register_part3_attention(registry, "flash", kDeviceFlashTiled);
  register_part3_attention(registry, "flash_plain_backward");
}

}  // namespace flash
