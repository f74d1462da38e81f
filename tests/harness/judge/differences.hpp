// Compares pieces of device memory.
#pragma once

#include <vector>

#include "common/cuda/device_tensor.hpp"

namespace flash::grading {

struct Pieces {
  const void *a, *b;
  std::size_t bytes;
};

// Whether a byte differs in any of the pairs; waits for that.
FLASH_EXPORT bool differ(const std::vector<Pieces>& pairs);

}  // namespace flash::grading
