// Memory of the host (Tensor) and of a GPU (DeviceTensor) alike.
#pragma once

#include "benchmarking/core.hpp"
#include "common/attention_call.hpp"
#include "common/compare.hpp"
#if FLASH_HAVE_CUDA
#include "common/cuda/device_tensor.hpp"
#endif

namespace flash {

template <class T, int Rank>
void fill_with_nan(Tensor<T, Rank>& tensor) {
  if constexpr (std::is_same_v<T, std::byte>)
    std::fill_n(tensor.data(), tensor.size(), std::byte{0xff});
  else
    std::fill_n(tensor.data(), tensor.size(), poison<T>());
}
template <class T, int Rank>
const Tensor<T, Rank>& on_host(const Tensor<T, Rank>& tensor) {
  return tensor;
}
#if FLASH_HAVE_CUDA
template <class T, int Rank>
void fill_with_nan(DeviceTensor<T, Rank>& tensor) {
  device::fill_bytes(tensor.data(), 0xff, tensor.bytes());
}
template <class T, int Rank>
const Tensor<T, Rank> on_host(const DeviceTensor<T, Rank>& tensor) {
  return tensor.to_host();
}
#endif

// A host tensor itself, or a copy of it on a GPU.
template <class T, int Rank, template <class, int> class Memory>
using InMemory = std::conditional_t<std::is_same_v<Memory<T, Rank>, Tensor<T, Rank>>,
                                    const Tensor<T, Rank>&, const Memory<T, Rank>>;

template <class TensorOfMemory>
std::size_t bytes_of(const TensorOfMemory& tensor) {
  return sizeof(*tensor.data()) * static_cast<std::size_t>(tensor.view().size());
}

// A trial whose tensors are in one of these memories.
template <template <class, int> class Memory>
class TrialIn : public Trial {
 protected:
  template <class U, std::size_t Rank>
  auto output(const std::array<Index, Rank>& shape) {
    auto tensor = tensor_in<Memory<U, static_cast<int>(Rank)>>(shape, Stream{});
    if (poison) fill_with_nan(tensor);
    return tensor;
  }

  // Before a pass with outputs of `output_bytes`: throws Unsupported, or makes its workspace.
  template <class EntryOfPass, class Pass>
  void reserve(const EntryOfPass& entry, const Pass& pass, std::size_t output_bytes) {
    check_supported(entry, pass);
    workspace_ = {};
    workspace_bytes_ = entry.workspace_of(problem_of(pass));
    if (workspace_bytes_ > 0)
      workspace_ = output<std::byte>(Shape<1>{static_cast<Index>(workspace_bytes_)});
    memory_.workspace = workspace_.data();
    memory_.own_peak_bytes = 0;
    output_bytes_ = output_bytes;
  }

  Memory<std::byte, 1> workspace_;
};

}  // namespace flash
