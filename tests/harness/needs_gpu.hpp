// For tests of code on a device: how they end where there is none.
#pragma once

#include <iostream>

#include "common/cuda/device.hpp"

namespace flash::harness {

// True where there is neither a GPU nor the emulator, with the words that ctest takes for
// "skipped".
inline bool skipped_without_gpu() {
  if (device::count() > 0) return false;
  std::cout << "verdict:needs-gpu" << std::endl;
  return true;
}

}  // namespace flash::harness
