// The functions of part 3 on a device, in the judge: each calls the student's in the runner. Which
// configurations there are, what is given says: a student's library could leave them out.
#include <cuda_runtime.h>

#include "harness/judge/remote.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"
#include "part3_flash_cuda/given/forward_launch.hpp"

namespace flash {

template <class T>
std::vector<FlashForwardConfig> flash_attention_forward_configs(Index head_dim) {
  return forward::configs_for<T>(head_dim);
}

template <class T>
void flash_attention_forward_cuda(const AttentionForward<T>& pass,
                                  const std::optional<FlashForwardConfig>& config) {
  const FlashForwardConfig chosen = config.value_or(FlashForwardConfig{});
  grading::device_call(
      grading::call_of(grading::device_function<T>(grading::kFlashForwardCuda), pass,
                       {chosen.head_dim, chosen.block_queries, chosen.block_keys, chosen.warps}));
}

#define FLASH_INSTANTIATE(T)                                                          \
  template std::vector<FlashForwardConfig> flash_attention_forward_configs<T>(Index); \
  template void flash_attention_forward_cuda(const AttentionForward<T>&,              \
                                             const std::optional<FlashForwardConfig>&)
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash
