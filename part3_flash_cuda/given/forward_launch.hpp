// Given: the configurations of the forward kernel that are compiled, and the choice of one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/checks.hpp"
#include "common/cuda/configurations.hpp"
#include "part3_flash_cuda/given/forward_tile.hpp"

namespace flash::forward {

// For each width of a head, the fastest configuration on an H200 comes first, and the one with the
// least shared memory last (README.md, section 9, has how much each needs). nvcc takes some 5
// seconds for each of them and each type. So types of 16 bits, and builds without a GPU, where
// nobody tunes, have only kFlashForwardConfigs, and one is enough to see whether nvcc takes a file.

template <class T>
struct CompiledFor {
#ifdef FLASH_ONE_CONFIGURATION
  using Configs = Table<Config<64, 64, 32, 2>>;
#else
  using Configs = Table<Config<32, 64, 32, 2>, Config<64, 128, 64, 4>, Config<64, 64, 32, 2>,
                        Config<128, 64, 32, 4>, Config<256, 64, 32, 8>>;
#endif
};
#ifndef FLASH_FEW_CONFIGURATIONS
template <>
struct CompiledFor<float> {
  using Configs = Table<Config<32, 128, 64, 4>, Config<32, 64, 32, 2>, Config<64, 128, 64, 4>,
                        Config<64, 128, 32, 4>, Config<64, 64, 32, 2>, Config<128, 128, 64, 8>,
                        Config<128, 64, 32, 4>, Config<128, 32, 32, 2>, Config<256, 64, 64, 8>,
                        Config<256, 64, 32, 8>>;
};
#endif
template <class T>
using Compiled = typename CompiledFor<T>::Configs;
inline constexpr Index kWidths[] = {256, 128, 64, 32};

inline void check_head_dim(Index head_dim) {
  check_at_least("head_dim", head_dim, 1);
  check_supported(why_above("head_dim", head_dim, kFlashMaxHeadDim));
}

// Those of one width that have room.
template <class... C>
std::vector<FlashForwardConfig> with_room(Table<C...>, Index width) {
  std::vector<FlashForwardConfig> configs;
  ((C::kHeadDim == width && has_room(C()) ? configs.push_back(C::kName) : void()), ...);
  return configs;
}

// What flash_attention_forward_configs() returns.
template <class T>
std::vector<FlashForwardConfig> configs_for(Index head_dim) {
  check_head_dim(head_dim);
  for (const Index width : kWidths) {
    const bool too_wide = width / 2 >= head_dim && width > 32;  // half of it holds a head as well
    if (too_wide) continue;
    if (auto configs = with_room(Compiled<T>(), width); !configs.empty()) return configs;
  }
  throw_no_room(head_dim);
}

template <class... C>
std::string names_of(Table<C...>) {
  std::string names;
  ((names += (names.empty() ? "" : "; ") + to_string(C::kName)), ...);
  return names;
}

// Calls use(C()) for the configuration `config`, or for the default for heads of `head_dim`.
template <class T, class Use>
void with_config(const std::optional<FlashForwardConfig>& config, Index head_dim, Use use) {
  check_head_dim(head_dim);
  const FlashForwardConfig chosen = config ? *config : configs_for<T>(head_dim).front();
  const auto is_chosen = [&]<class C>(C) { return chosen == C::kName; };
  if (!use_first(Compiled<T>(), is_chosen, use))
    throw Unsupported("config is " + to_string(chosen) + "; compiled are " +
                      names_of(Compiled<T>()));
}

}  // namespace flash::forward
