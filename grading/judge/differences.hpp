// Counts the bytes that differ between pieces of device memory.
#pragma once

#include "common/cuda/device_tensor.hpp"

namespace flash::grading {

class FLASH_EXPORT Differences {
 public:
  Differences();

  // Enqueues the comparison of two pieces.
  void add(const void* a, const void* b, std::size_t bytes);

  // Whether a byte differed in any of them; waits for that.
  bool any() const;

 private:
  DeviceTensor<int, 1> found_;
};

}  // namespace flash::grading
