// Tensors that own device memory. The counterpart of Tensor, row-major, for numbers.
#pragma once

#include <utility>

#include "common/cuda/device.hpp"
#include "common/tensor.hpp"

namespace flash {

template <class T, int Rank>
class DeviceTensor {
 public:
  DeviceTensor() = default;

  // Uninitialised. Throws OutOfMemory.
  explicit DeviceTensor(const Shape<Rank>& shape, Stream stream = {})
      : shape_(shape),
        stream_(stream),
        bytes_(sizeof(T) * static_cast<std::size_t>(element_count(shape))) {
    data_ = static_cast<T*>(device::allocate(bytes_, stream_));
  }

  // A copy of a host tensor.
  explicit DeviceTensor(const Tensor<T, Rank>& host) : DeviceTensor(host.shape()) {
    copy_from(host);
  }

  DeviceTensor(DeviceTensor&& other) noexcept { swap(other); }
  DeviceTensor& operator=(DeviceTensor&& other) noexcept {
    swap(other);
    return *this;
  }
  ~DeviceTensor() { device::free(data_, stream_); }

  void copy_from(const Tensor<T, Rank>& host) {
    if (host.shape() != shape_)
      throw ShapeError("host has shape " + to_string<Rank>(host.shape()) +
                       "; it must be the device tensor's, " + to_string<Rank>(shape_));
    device::copy_to_device(data_, host.data(), bytes_);
  }

  Tensor<T, Rank> to_host() const {
    Tensor<T, Rank> host(shape_);
    device::copy_to_host(host.data(), data_, bytes_);
    return host;
  }

  T* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  const Shape<Rank>& shape() const { return shape_; }
  TensorView<T, Rank> view() const { return {data_, shape_}; }

 private:
  void swap(DeviceTensor& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(shape_, other.shape_);
    std::swap(stream_, other.stream_);
    std::swap(bytes_, other.bytes_);
  }

  T* data_ = nullptr;
  Shape<Rank> shape_{};
  Stream stream_{};
  std::size_t bytes_ = 0;
};

}  // namespace flash
