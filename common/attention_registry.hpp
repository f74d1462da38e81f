// Implementations of attention by name, and one call for any of them: forward, then backward from what the forward pass saved.
//
//   AttentionRegistry registry;
//   register_part2_attention(registry);                                 // part2_flash_cpu/implementations.hpp
//   const Attention<float> pass = attention<float>(registry, "flash", q, k, v, {.causal = true});
//   pass.out();  pass.lse();
//   const AttentionGradients<float> d = pass.backward(d_out);
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/attention.hpp"
#include "common/registry.hpp"

namespace flash {

// Forward and backward for one element type. Shapes and errors: common/attention.hpp. `p` is (batch, heads, queries, keys) for
// an implementation that saves all of P, and else an empty view that is neither read nor written.
template <class T>
struct AttentionPasses {
  using Forward = void(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
                       TensorView<T, 3> lse, TensorView<T, 4> p, const AttentionOptions& options);
  using Backward = void(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                        TensorView<const T, 4> out, TensorView<const T, 3> lse, TensorView<const T, 4> p,
                        TensorView<const T, 4> d_out, TensorView<T, 4> d_q, TensorView<T, 4> d_k, TensorView<T, 4> d_v,
                        const AttentionOptions& options);

  Forward* forward = nullptr;
  Backward* backward = nullptr;
};

// What an entry of the registry runs. Only the passes of the entry's dtypes are there.
struct AttentionFunctions {
  AttentionPasses<float> float32 = {};
  AttentionPasses<double> float64 = {};
  bool saves_p = false;  // the backward pass takes P from the forward pass, in place of out and lse

  template <class T>
  const AttentionPasses<T>& passes() const {
    if constexpr (std::is_same_v<T, float>) {
      return float32;
    } else {
      static_assert(std::is_same_v<T, double>, "attention on the CPU is in float or double");
      return float64;
    }
  }
};

// The functions that are entered have to live as long as the registry.
using AttentionRegistry = Registry<const AttentionFunctions>;

// The passes of the implementation called `name`. Throws ArgumentError when there is none of that name, naming what there is,
// and Unsupported when it has none for T.
template <class T>
const AttentionPasses<T>& attention_passes(const AttentionRegistry& registry, const std::string& name) {
  const AttentionPasses<T>& passes = registry.find(name).run->template passes<T>();
  if (passes.forward == nullptr || passes.backward == nullptr)
    throw Unsupported("implementation '" + name + "' has no " + (sizeof(T) == 4 ? "float32" : "float64") + " version");
  return passes;
}

template <class T>
struct AttentionGradients {
  Tensor<T, 4> d_q, d_k, d_v;
};

// One forward pass, and what it keeps for the backward pass. q, k and v are the caller's, and have to live as long as this.
template <class T>
class Attention {
 public:
  // Runs the forward pass. Throws what the implementation throws.
  Attention(const AttentionFunctions& functions, TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
            const AttentionOptions& options)
      : functions_(&functions),
        options_(options),
        shape_(attention_shape(q.shape(), k.shape())),
        q_(q),
        k_(k),
        v_(v),
        out_(shape_.of_queries()),
        lse_(shape_.of_rows()) {
    if (functions.saves_p) p_ = Tensor<T, 4>({shape_.batch, shape_.heads, shape_.queries, shape_.keys});
    functions.template passes<T>().forward(q, k, v, out_.view(), lse_.view(), p_.view(), options);
  }

  const AttentionShape& shape() const { return shape_; }
  const Tensor<T, 4>& out() const { return out_; }
  const Tensor<T, 3>& lse() const { return lse_; }

  // The gradients of sum(out * d_out).
  AttentionGradients<T> backward(TensorView<const T, 4> d_out) const {
    AttentionGradients<T> d{Tensor<T, 4>(shape_.of_queries()), Tensor<T, 4>(shape_.of_keys()), Tensor<T, 4>(shape_.of_keys())};
    functions_->template passes<T>().backward(q_, k_, v_, out_.view(), lse_.view(), p_.view(), d_out, d.d_q.view(),
                                              d.d_k.view(), d.d_v.view(), options_);
    return d;
  }

  // The tensors that the backward pass takes from the forward pass, with their sizes in bytes.
  std::vector<std::pair<std::string, std::size_t>> saved() const {
    const auto bytes = [](Index elements) { return static_cast<std::size_t>(elements) * sizeof(T); };
    std::vector<std::pair<std::string, std::size_t>> tensors{
        {"q", bytes(q_.size())}, {"k", bytes(k_.size())}, {"v", bytes(v_.size())}};
    if (functions_->saves_p) {
      tensors.emplace_back("p", bytes(p_.size()));
    } else {
      tensors.emplace_back("out", bytes(out_.size()));
      tensors.emplace_back("lse", bytes(lse_.size()));
    }
    return tensors;
  }

 private:
  const AttentionFunctions* functions_;
  AttentionOptions options_;
  AttentionShape shape_;
  TensorView<const T, 4> q_, k_, v_;
  Tensor<T, 4> out_, p_;
  Tensor<T, 3> lse_;
};

// The forward pass of the implementation called `name`. Throws what attention_passes() and the implementation throw.
template <class T>
Attention<T> attention(const AttentionRegistry& registry, const std::string& name, TensorView<const T, 4> q,
                       TensorView<const T, 4> k, TensorView<const T, 4> v, const AttentionOptions& options = {}) {
  attention_passes<T>(registry, name);
  return Attention<T>(*registry.find(name).run, q, k, v, options);
}

}  // namespace flash
