// The functions of part 3 on a device, in the judge: each calls the student's in the runner.
#include <sstream>

#include "harness/judge/remote.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"

namespace flash {

template <class T>
std::vector<FlashForwardConfig> flash_attention_forward_configs(Index head_dim) {
  const grading::Message done =
      grading::device_call({.function = grading::device_function<T>(grading::kFlashForwardConfigs),
                            .integers = {head_dim}});
  std::istringstream text(done.text);
  std::vector<FlashForwardConfig> configs;
  for (FlashForwardConfig config;
       text >> config.head_dim >> config.block_queries >> config.block_keys >> config.warps;)
    configs.push_back(config);
  if (configs.empty())
    throw Error("the library is compiled for no configuration of heads of " +
                std::to_string(head_dim));
  return configs;
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
