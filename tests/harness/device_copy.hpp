// A PaddedTensor's buffer on the device, poison and all.
#pragma once

#include "common/cuda/device.hpp"
#include "harness/padded_tensor.hpp"

namespace flash::harness {

class DeviceCopy {
 public:
  explicit DeviceCopy(PaddedTensor& host) : host_(host), bytes_(sizeof(float) * host.buffer().size()) {
    memory_ = static_cast<float*>(device::allocate(bytes_));
    device::copy_to_device(memory_, host_.buffer().data(), bytes_);
    if (device::is_emulated()) forbid_surroundings();
  }
  ~DeviceCopy() { device::free(memory_); }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  TensorView<float, 3> view() const { return host_.view_in(memory_); }

  // Brings the whole buffer back, what lies around the tensor too.
  void copy_back() { device::copy_to_host(host_.buffer().data(), memory_, bytes_); }

  const void* memory() const { return memory_; }

 private:
  // Where there are checks, a kernel that reads what lies around the tensor is reported, even if it makes no use of it.
  void forbid_surroundings() {
    const std::vector<bool> inside = host_.elements();
    for (std::size_t begin = 0, end; begin < inside.size(); begin = end) {
      for (end = begin; end < inside.size() && !inside[end];) ++end;
      if (end > begin) device::forbid(memory_ + begin, sizeof(float) * (end - begin));
      while (end < inside.size() && inside[end]) ++end;
    }
  }

  PaddedTensor& host_;
  std::size_t bytes_;
  float* memory_ = nullptr;
};

}  // namespace flash::harness
