// One call of attention by the names of its passes: forward, then backward from what the forward
// pass saved. The same on the host (Memory = Tensor) and on a GPU (Memory = DeviceTensor).
//
//   const Attention<float> pass(registry, {"flash", "flash"}, q, k, v, {.causal = true});
//   pass.out();  pass.lse();
//   const auto d = pass.backward(d_out);
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/registry.hpp"

namespace flash {

// Which passes: names of entries for the device.
struct AttentionNames {
  std::string forward = "flash", backward = "flash";
};

// A tensor of host memory, or of device memory for `stream`.
template <class TensorOfMemory, class ShapeOfTensor>
TensorOfMemory tensor_in(const ShapeOfTensor& shape, Stream stream) {
  if constexpr (std::is_constructible_v<TensorOfMemory, const ShapeOfTensor&, Stream>)
    return TensorOfMemory(shape, stream);
  else
    return TensorOfMemory(shape);
}

// Runs a pass with a workspace that is freed behind it. Throws Unsupported when it does not take
// the problem.
template <template <class, int> class Memory, template <class> class Pass, class T>
void run_entry(const Entry<Pass>& entry, const Pass<T>& pass, PassMemory& memory) {
  check_supported(entry, pass);
  const auto bytes = static_cast<Index>(entry.workspace_of(problem_of(pass)));
  Memory<std::byte, 1> workspace;
  if (bytes > 0) workspace = tensor_in<Memory<std::byte, 1>>(Shape<1>{bytes}, pass.stream);
  memory.workspace = workspace.data();
  entry.run.template of<T>()(pass, memory);
  if (memory.deliver) std::exchange(memory.deliver, nullptr)();
}

template <class T, template <class, int> class Memory = Tensor>
struct AttentionGradients {
  Memory<T, 4> d_q, d_k, d_v;
};

// q, k and v are the caller's, and have to live as long as this.
template <class T, template <class, int> class Memory = Tensor>
class Attention {
 public:
  using Lse = LseType<T>;
  static constexpr DeviceKind kDevice =
      std::is_same_v<Memory<T, 4>, Tensor<T, 4>> ? DeviceKind::kCpu : DeviceKind::kGpu;

  // Runs the forward pass. Throws ArgumentError for a name that the registry does not have and for
  // two passes that do not go together, Unsupported when a pass does not take the problem,
  // OutOfMemory, and what the pass throws. An empty name of a backward pass: there will be none.
  Attention(const Registry& registry, const AttentionNames& names, TensorView<const T, 4> q,
            TensorView<const T, 4> k, TensorView<const T, 4> v,
            const AttentionOptions& options = {}, Stream stream = {})
      : forward_(&registry.forward.find(names.forward, kDevice)),
        backward_(names.backward.empty() ? nullptr
                                         : &registry.backward.find(names.backward, kDevice)),
        options_(options),
        shape_(attention_shape(q.shape(), k.shape())),
        stream_(stream),
        q_(q),
        k_(k),
        v_(v),
        out_(tensor_in<Memory<T, 4>>(shape_.of_queries(), stream)),
        lse_(tensor_in<Memory<Lse, 3>>(shape_.of_rows(), stream)) {
    if (backward_ != nullptr) check_pair(*forward_, *backward_);
    const AttentionForward<T> pass{q, k, v, out_.view(), lse_.view(), options, stream};
    run_entry<Memory>(*forward_, pass, memory_);
  }

  const AttentionShape& shape() const { return shape_; }
  TensorView<const T, 4> out() const { return out_.view(); }
  TensorView<const Lse, 3> lse() const { return lse_.view(); }

  // The gradients of sum(out * d_out).
  AttentionGradients<T, Memory> backward(TensorView<const T, 4> d_out) {
    AttentionGradients<T, Memory> d{tensor_in<Memory<T, 4>>(shape_.of_queries(), stream_),
                                    tensor_in<Memory<T, 4>>(shape_.of_keys(), stream_),
                                    tensor_in<Memory<T, 4>>(shape_.of_keys(), stream_)};
    const AttentionBackward<T> pass{q_,           k_,       v_,           out(),
                                    lse(),        d_out,    d.d_q.view(), d.d_k.view(),
                                    d.d_v.view(), options_, stream_};
    run_entry<Memory>(*backward_, pass, memory_);
    return d;
  }

  // The tensors that the backward pass takes from the forward pass, with their sizes in bytes.
  std::vector<std::pair<std::string, std::size_t>> saved() const {
    const auto bytes = [](const auto& x, std::size_t each) {
      return static_cast<std::size_t>(x.size()) * each;
    };
    std::vector<std::pair<std::string, std::size_t>> tensors{
        {"q", bytes(q_, sizeof(T))}, {"k", bytes(k_, sizeof(T))}, {"v", bytes(v_, sizeof(T))}};
    if (backward_ != nullptr && backward_->only_as_pair) {
      tensors.emplace_back("kept", memory_.kept_bytes);
    } else {
      tensors.emplace_back("out", bytes(out(), sizeof(T)));
      tensors.emplace_back("lse", bytes(lse(), sizeof(Lse)));
    }
    return tensors;
  }

 private:
  const Entry<AttentionForward>* forward_;
  const Entry<AttentionBackward>* backward_;
  AttentionOptions options_;
  AttentionShape shape_;
  Stream stream_;
  TensorView<const T, 4> q_, k_, v_;
  Memory<T, 4> out_;
  Memory<Lse, 3> lse_;
  PassMemory memory_;
};

}  // namespace flash
