// Copies of a test's tensors on the device.
#pragma once

#include "common/compare.hpp"
#include "common/cuda/device_tensor.hpp"

namespace flash::part1 {

template <class View>
auto device_copy(View view) {
  return DeviceTensor(packed(view));
}

template <class T, int Rank>
void copy_back(const DeviceTensor<T, Rank>& from, TensorView<T, Rank> to) {
  device::synchronize();
  device::copy_to_host(to.data(), from.data(), from.bytes());
}

}  // namespace flash::part1
