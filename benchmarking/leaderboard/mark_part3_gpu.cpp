// The marks of part 3's boards.
#include "benchmarking/leaderboard/mark.hpp"
#include "common/cuda/device_tensor.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"

namespace flash {

template <class T>
void flash_attention_forward_cuda(const AttentionForward<T>& pass,
                                  const std::optional<FlashForwardConfig>&) {
  run_mark<DeviceTensor>(&Registry::forward, DeviceKind::kGpu, pass);
}

template void flash_attention_forward_cuda(const AttentionForward<float>&,
                                           const std::optional<FlashForwardConfig>&);
template void flash_attention_forward_cuda(const AttentionForward<Half>&,
                                           const std::optional<FlashForwardConfig>&);
template void flash_attention_forward_cuda(const AttentionForward<BFloat16>&,
                                           const std::optional<FlashForwardConfig>&);

}  // namespace flash
