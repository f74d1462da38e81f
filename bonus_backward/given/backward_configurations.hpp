// Given: the configurations of the two backward kernels that are compiled.
#pragma once

#include "bonus_backward/given/backward_tile.hpp"
#include "common/cuda/configurations.hpp"

namespace flash::backward {

// For each width of a head the faster one first, if it has two, then the one with room in 64 KiB of
// shared memory, which is what Turing has for a block. Each takes the compiler some seconds a type:
// for the types of 16 bits there are fewer, and where no GPU runs them, so that everybody only
// waits for the compiler, the fewest.
template <class T>
struct CompiledFor {
#ifdef FLASH_FEW_CONFIGURATIONS
  using Configs = Table<Config<64, 64, 32, 2, 8>, Config<256, 16, 8, 2, 2>>;
#else
  using Configs = Table<Config<64, 128, 32, 4, 8>, Config<64, 64, 32, 2, 8>,
                        Config<128, 32, 16, 2, 8>, Config<256, 16, 8, 2, 2>>;
#endif
};
#ifndef FLASH_FEW_CONFIGURATIONS
template <>
struct CompiledFor<float> {
  using Configs =
      Table<Config<32, 128, 32, 4, 8>, Config<64, 128, 32, 4, 8>, Config<64, 64, 32, 2, 8>,
            Config<128, 64, 32, 4, 8>, Config<128, 32, 16, 2, 8>, Config<256, 32, 16, 4, 4>,
            Config<256, 16, 8, 2, 2>>;
};
#endif
template <class T>
using Compiled = typename CompiledFor<T>::Configs;

}  // namespace flash::backward
