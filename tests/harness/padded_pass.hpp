// The tensors of a pass, each with poison around it, in host memory or on a device; and what a call
// did to them that it must not do.
//
//   PaddedForward<float> tensors(inputs, Layout::kSpread, options);  // DeviceCopy: on a device
//   flash_attention_forward(tensors.pass());
//   tensors.copy_back();
//   tensors.damage();    // "", or what is wrong, for a student to read
//   tensors.out.view();  // in host memory
#pragma once

#include <string>

#include "harness/attention_data.hpp"
#include "harness/padded_tensor.hpp"

namespace flash::harness {

// Where a call finds a padded tensor: here, where it is. On a device: DeviceCopy.
template <class T, int Rank>
class InPlace {
 public:
  InPlace(BasicPaddedTensor<T, Rank>& host, Index /*shift*/) : host_(host) {}
  TensorView<T, Rank> view() const { return host_.view(); }
  void copy_back() {}

 private:
  BasicPaddedTensor<T, Rank>& host_;
};

template <class T, int Rank, template <class, int> class Memory = InPlace>
class PassTensor {
 public:
  // An input.
  PassTensor(const char* name, const Tensor<T, Rank>& values, Layout layout, Index shift = 0)
      : name_(name), tensor_(values, layout), before_(tensor_), memory_(tensor_, shift) {}

  // An output.
  PassTensor(const char* name, const Shape<Rank>& shape, Layout layout, Index shift = 0)
      : name_(name), tensor_(shape, layout), memory_(tensor_, shift) {}

  PassTensor(const PassTensor&) = delete;
  PassTensor& operator=(const PassTensor&) = delete;

  BasicPaddedTensor<T, Rank>& padded() { return tensor_; }

  // For the call, wherever it runs.
  TensorView<T, Rank> in_call() const { return memory_.view(); }
  const void* memory() const { return memory_.memory(); }

  // In host memory: up to date after copy_back().
  void copy_back() { memory_.copy_back(); }
  TensorView<const T, Rank> view() { return tensor_.view(); }
  bool same_bits(const PassTensor& other) const { return tensor_.same_bits(other.tensor_); }

  // "" when nothing is wrong.
  std::string damage() const {
    if (before_)
      return tensor_.same_bits(*before_)
                 ? ""
                 : "It changes `" + name_ + "`. Inputs must stay as they are.";
    const auto where = tensor_.written_outside();
    return where ? "It writes outside of `" + name_ + "`: " + *where + "." : "";
  }

 private:
  std::string name_;
  BasicPaddedTensor<T, Rank> tensor_;
  std::optional<BasicPaddedTensor<T, Rank>> before_;
  Memory<T, Rank> memory_;
};

template <class... Tensors>
std::string damage_of(const Tensors&... tensors) {
  std::string damage;
  ((damage.empty() ? void(damage = tensors.damage()) : void()), ...);
  return damage;
}

// lse is row-major. `shift`: of the first elements behind an aligned address on a device, in
// elements.
template <class T, template <class, int> class Memory = InPlace>
struct PaddedForward {
  PassTensor<T, 4, Memory> q, k, v, out;
  PassTensor<LseType<T>, 3, Memory> lse;
  AttentionOptions options;

  PaddedForward(const AttentionInputs<T>& inputs, Layout layout, const AttentionOptions& of_pass,
                Index shift = 0)
      : q("q", inputs.q, layout, shift),
        k("k", inputs.k, layout, shift),
        v("v", inputs.v, layout, shift),
        out("out", inputs.q.shape(), layout, shift),
        lse("lse", {inputs.q.extent(0), inputs.q.extent(1), inputs.q.extent(2)}, Layout::kRowMajor,
            shift),
        options(of_pass) {}

  AttentionForward<T> pass() const {
    return {q.in_call(), k.in_call(), v.in_call(), out.in_call(), lse.in_call(), options};
  }
  void copy_back() {
    for (auto* tensor : {&q, &k, &v, &out}) tensor->copy_back();
    lse.copy_back();
  }
  std::string damage() const { return damage_of(out, lse, q, k, v); }
};

template <class T, template <class, int> class Memory = InPlace>
struct PaddedBackward {
  PassTensor<T, 4, Memory> q, k, v, out, d_out, d_q, d_k, d_v;
  PassTensor<LseType<T>, 3, Memory> lse;
  AttentionOptions options;

  PaddedBackward(const AttentionInputs<T>& inputs, const Tensor<T, 4>& out_values,
                 const Tensor<LseType<T>, 3>& lse_values, const Tensor<T, 4>& d_out_values,
                 Layout layout, const AttentionOptions& of_pass, Index shift = 0)
      : q("q", inputs.q, layout, shift),
        k("k", inputs.k, layout, shift),
        v("v", inputs.v, layout, shift),
        out("out", out_values, layout, shift),
        d_out("d_out", d_out_values, layout, shift),
        d_q("d_q", inputs.q.shape(), layout, shift),
        d_k("d_k", inputs.k.shape(), layout, shift),
        d_v("d_v", inputs.v.shape(), layout, shift),
        lse("lse", lse_values, Layout::kRowMajor, shift),
        options(of_pass) {}

  AttentionBackward<T> pass() const {
    return {q.in_call(),     k.in_call(),   v.in_call(),   out.in_call(), lse.in_call(),
            d_out.in_call(), d_q.in_call(), d_k.in_call(), d_v.in_call(), options};
  }
  void copy_back() {
    for (auto* tensor : {&q, &k, &v, &out, &d_out, &d_q, &d_k, &d_v}) tensor->copy_back();
    lse.copy_back();
  }
  std::string damage() const { return damage_of(d_q, d_k, d_v, q, k, v, out, d_out, lse); }
};

}  // namespace flash::harness
