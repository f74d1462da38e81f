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
  }
  ~DeviceCopy() { device::free(memory_); }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  TensorView<float, 3> view() const { return host_.view_in(memory_); }

  // Brings the whole buffer back, what lies around the tensor too.
  void copy_back() { device::copy_to_host(host_.buffer().data(), memory_, bytes_); }

 private:
  PaddedTensor& host_;
  std::size_t bytes_;
  float* memory_ = nullptr;
};

}  // namespace flash::harness
