// A stream that does not wait for the default one and has 2 GiB to write first: what is enqueued on
// it comes after all that is enqueued elsewhere. A kernel that ignores the stream that it was given
// runs before its inputs are there.
#pragma once

#include <cstddef>

#include "common/cuda/device_tensor.hpp"

namespace flash::harness {

class BusyStream {
 public:
  // Waits for the device, then begins the work.
  BusyStream() {
    device::synchronize();
    for (int i = 0; i < 8; ++i) device::fill_bytes(other_.data(), 1, other_.bytes(), stream_.get());
  }

  Stream get() const { return stream_.get(); }

  // Each byte of the tensor becomes `value`, when the stream comes to it.
  template <class T, int Rank>
  void fill(DeviceTensor<T, Rank>& tensor, unsigned char value) const {
    device::fill_bytes(tensor.data(), value, tensor.bytes(), stream_.get());
  }

 private:
  device::IndependentStream stream_;
  DeviceTensor<unsigned char, 1> other_{{Index{1} << 28}};
};

}  // namespace flash::harness
