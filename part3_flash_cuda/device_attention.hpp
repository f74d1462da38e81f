// Attention on a GPU by name, and the call that a program makes: forward, then backward from what the forward pass saved. What
// common/attention_registry.hpp is for host memory.
//
//   DeviceAttentionRegistry registry;
//   register_part3_attention(registry);                                        // part3_flash_cuda/implementations.hpp
//   const DeviceAttention<Half> pass(registry, "flash", q, k, v, {.causal = true});
//   pass.out();  pass.lse();
//   const DeviceAttentionGradients<Half> d = pass.backward(d_out);
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/attention.hpp"
#include "common/cuda/device_tensor.hpp"
#include "common/half.hpp"
#include "common/registry.hpp"

namespace flash {

// Forward and backward for one element type, in device memory. Shapes and errors: common/attention.hpp. `p` is (batch, heads,
// queries, keys) for an implementation that saves all of P, and else an empty view that is neither read nor written. What a pass
// launches goes to `stream`, and nothing waits.
template <class T>
struct DeviceAttentionPasses {
  using Forward = void(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
                       TensorView<float, 3> lse, TensorView<T, 4> p, const AttentionOptions& options, Stream stream);
  using Backward = void(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                        TensorView<const T, 4> out, TensorView<const float, 3> lse, TensorView<const T, 4> p,
                        TensorView<const T, 4> d_out, TensorView<T, 4> d_q, TensorView<T, 4> d_k, TensorView<T, 4> d_v,
                        const AttentionOptions& options, Stream stream);

  Forward* forward = nullptr;
  Backward* backward = nullptr;
};

// What an entry of the registry runs. Only the passes of the entry's dtypes are there.
struct DeviceAttentionFunctions {
  DeviceAttentionPasses<float> float32 = {};
  DeviceAttentionPasses<Half> float16 = {};
  DeviceAttentionPasses<BFloat16> bfloat16 = {};
  bool saves_p = false;  // the backward pass takes P from the forward pass, in place of out and lse

  template <class T>
  const DeviceAttentionPasses<T>& passes() const {
    if constexpr (std::is_same_v<T, float>) {
      return float32;
    } else if constexpr (std::is_same_v<T, Half>) {
      return float16;
    } else {
      static_assert(std::is_same_v<T, BFloat16>, "attention on a GPU is in float, Half or BFloat16");
      return bfloat16;
    }
  }
};

// The functions that are entered have to live as long as the registry.
using DeviceAttentionRegistry = Registry<const DeviceAttentionFunctions>;

template <class T>
struct DeviceAttentionGradients {
  DeviceTensor<T, 4> d_q, d_k, d_v;
};

// One forward pass, and what it keeps for the backward pass. q, k and v are the caller's, and have to live as long as this.
template <class T>
class DeviceAttention {
 public:
  // Starts the forward pass of the implementation called `name`. Throws ArgumentError when there is none of that name,
  // Unsupported when it has none for T, OutOfMemory, and what the implementation throws.
  DeviceAttention(const DeviceAttentionRegistry& registry, const std::string& name, TensorView<const T, 4> q,
                  TensorView<const T, 4> k, TensorView<const T, 4> v, const AttentionOptions& options = {}, Stream stream = {})
      : functions_(registry.find(name).run),
        options_(options),
        shape_(attention_shape(q.shape(), k.shape())),
        stream_(stream),
        q_(q),
        k_(k),
        v_(v) {
    if (passes().forward == nullptr || passes().backward == nullptr)
      throw Unsupported("implementation '" + name + "' has no version for this element type");
    out_ = DeviceTensor<T, 4>(shape_.of_queries(), stream);
    lse_ = DeviceTensor<float, 3>(shape_.of_rows(), stream);
    if (functions_->saves_p) p_ = DeviceTensor<T, 4>({shape_.batch, shape_.heads, shape_.queries, shape_.keys}, stream);
    passes().forward(q, k, v, out_.view(), lse_.view(), p_.view(), options, stream);
  }

  const AttentionShape& shape() const { return shape_; }
  TensorView<const T, 4> out() const { return out_.view(); }
  TensorView<const float, 3> lse() const { return lse_.view(); }

  // The gradients of sum(out * d_out).
  DeviceAttentionGradients<T> backward(TensorView<const T, 4> d_out) const {
    DeviceAttentionGradients<T> d{DeviceTensor<T, 4>(shape_.of_queries(), stream_), DeviceTensor<T, 4>(shape_.of_keys(), stream_),
                                  DeviceTensor<T, 4>(shape_.of_keys(), stream_)};
    passes().backward(q_, k_, v_, out(), lse(), p_.view(), d_out, d.d_q.view(), d.d_k.view(), d.d_v.view(), options_, stream_);
    return d;
  }

  // The tensors that the backward pass takes from the forward pass, with their sizes in bytes.
  std::vector<std::pair<std::string, std::size_t>> saved() const {
    const auto input_bytes = [](const TensorView<const T, 4>& x) { return static_cast<std::size_t>(x.size()) * sizeof(T); };
    std::vector<std::pair<std::string, std::size_t>> tensors{
        {"q", input_bytes(q_)}, {"k", input_bytes(k_)}, {"v", input_bytes(v_)}};
    if (functions_->saves_p) {
      tensors.emplace_back("p", p_.bytes());
    } else {
      tensors.emplace_back("out", out_.bytes());
      tensors.emplace_back("lse", lse_.bytes());
    }
    return tensors;
  }

 private:
  const DeviceAttentionPasses<T>& passes() const { return functions_->template passes<T>(); }

  const DeviceAttentionFunctions* functions_;
  AttentionOptions options_;
  AttentionShape shape_;
  Stream stream_;
  TensorView<const T, 4> q_, k_, v_;
  DeviceTensor<T, 4> out_, p_;
  DeviceTensor<float, 3> lse_;
};

}  // namespace flash
