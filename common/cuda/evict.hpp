// Empties a GPU's L2 cache, so that what comes next finds its inputs in memory.
#pragma once

#include "common/cuda/device_tensor.hpp"

namespace flash {

// Overwrites twice as much as fits into the cache, on the default stream, and does not wait.
class L2Eviction {
 public:
  void operator()() { device::fill_bytes(buffer_.data(), ++value_, buffer_.bytes()); }
  std::size_t bytes() const { return buffer_.bytes(); }

 private:
  DeviceTensor<char, 1> buffer_{Shape<1>{2 * static_cast<Index>(device::l2_cache_bytes())}};
  unsigned char value_ = 0;
};

}  // namespace flash
