// One attention problem on a device, and what an implementation of the registry makes of it beside the oracle.
#pragma once

#include <string>

#include "harness/attention_data.hpp"
#include "harness/catch.hpp"
#include "part3_flash_cuda/device_attention.hpp"

namespace flash::part3 {

using harness::Data;

template <class T>
struct OnDevice {
  harness::AttentionInputs<T> host;
  Tensor<T, 4> host_d_out;
  DeviceTensor<T, 4> q, k, v, d_out;

  explicit OnDevice(const AttentionShape& shape, Data data = Data::kNormal)
      : host(harness::make_inputs<T>(shape, data, 1)),
        host_d_out(normal<T>(shape.of_queries(), 1000)),
        q(host.q),
        k(host.k),
        v(host.v),
        d_out(host_d_out) {}

  DeviceAttention<T> forward(const DeviceAttentionRegistry& registry, const std::string& name,
                             const AttentionOptions& options = {}) const {
    return DeviceAttention<T>(registry, name, q.view(), k.view(), v.view(), options);
  }
};

template <class T>
Tensor<T, 4> to_host(const DeviceTensor<T, 4>& x) {
  device::synchronize();
  return x.to_host();
}

// Forward and backward of the implementation called `name`: out, lse and the gradients.
template <class T>
void check_attention(const DeviceAttentionRegistry& registry, const std::string& name, const AttentionShape& shape, bool causal,
                     Data data = Data::kNormal) {
  const AttentionOptions options{.causal = causal};
  const OnDevice<T> on_device(shape, data);
  const DeviceAttention<T> pass = on_device.forward(registry, name, options);
  const auto d = pass.backward(on_device.d_out.view());

  const auto& [q, k, v] = on_device.host;
  const auto forward = attention_oracle(q.view(), k.view(), v.view(), options);
  auto want = attention_backward_oracle(q.view(), k.view(), v.view(), on_device.host_d_out.view(), options);
  CAPTURE(name, to_string<4>(shape.of_queries()), shape.keys, causal, sizeof(T));
  Tensor<T, 4> out(shape.of_queries());
  Tensor<float, 3> lse(shape.of_rows());
  device::synchronize();
  device::copy_to_host(out.data(), pass.out().data(), sizeof(T) * static_cast<std::size_t>(out.size()));
  device::copy_to_host(lse.data(), pass.lse().data(), sizeof(float) * static_cast<std::size_t>(lse.size()));
  auto want_out = forward.out;
  const double out_bound = attention_output_bound<T>(shape, forward.largest_score);
  if constexpr (std::is_same_v<T, Half>) harness::add_underflow(want_out, out_bound, shape.keys);
  CHECK(harness::wrong_in<T>(std::as_const(out).view(), want_out, out_bound, "query", 0) == "");
  CHECK(harness::wrong_lse<float>(std::as_const(lse).view(), forward.lse,
                                  attention_bound(shape, forward.largest_score, unit_roundoff<float>()), 0) == "");

  const double bound = attention_gradient_bound<T>(shape, forward.largest_score);
  if constexpr (std::is_same_v<T, Half>)
    for (WithMagnitude* gradient : {&want.d_q, &want.d_k, &want.d_v})
      harness::add_underflow(*gradient, bound, std::max(shape.queries, shape.keys));
  const Tensor<T, 4> d_q = to_host(d.d_q), d_k = to_host(d.d_k), d_v = to_host(d.d_v);
  CHECK(harness::wrong_in<T>(d_v.view(), want.d_v, bound, "key", 0) == "");
  CHECK(harness::wrong_in<T>(d_q.view(), want.d_q, bound, "query", 0) == "");
  CHECK(harness::wrong_in<T>(d_k.view(), want.d_k, bound, "key", 0) == "");
}

}  // namespace flash::part3
