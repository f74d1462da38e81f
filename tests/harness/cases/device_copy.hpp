// A PaddedTensor's buffer on the device, poison and all.
#pragma once

#include "common/cuda/device.hpp"
#include "harness/cases/padded_tensor.hpp"

namespace flash::harness {

template <class T, int Rank>
class DeviceCopy {
 public:
  explicit DeviceCopy(BasicPaddedTensor<T, Rank>& host)
      : host_(host), bytes_(sizeof(T) * host.buffer().size()) {
    buffer_ = static_cast<T*>(device::allocate(bytes_));
    device::copy_to_device(buffer_, host_.buffer().data(), bytes_);
    if (device::is_emulated()) forbid_surroundings();
  }
  ~DeviceCopy() { device::free(buffer_); }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  TensorView<T, Rank> view() const { return host_.view_in(buffer_); }

  // Waits for the device and brings the whole buffer back, what lies around the tensor too.
  void copy_back() {
    device::synchronize();
    device::copy_to_host(host_.buffer().data(), buffer_, bytes_);
  }

  const void* memory() const { return buffer_; }

 private:
  // Where there are checks, a kernel that reads what lies around the tensor is reported, even if it
  // makes no use of it.
  void forbid_surroundings() {
    const std::vector<bool> inside = host_.elements();
    for (std::size_t begin = 0, end; begin < inside.size(); begin = end) {
      for (end = begin; end < inside.size() && !inside[end];) ++end;
      if (end > begin) device::forbid(buffer_ + begin, sizeof(T) * (end - begin));
      while (end < inside.size() && inside[end]) ++end;
    }
  }

  BasicPaddedTensor<T, Rank>& host_;
  std::size_t bytes_;
  T* buffer_ = nullptr;
};

}  // namespace flash::harness
