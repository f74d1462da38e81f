// What part 3 enters in the registry of attention on a GPU (device_attention.hpp): "standard", which is given, and "flash", the
// forward pass of skeleton or solution, whichever the program is linked with, and the plain backward pass.
#pragma once

#include <string>

#include "part3_flash_cuda/device_attention.hpp"
#include "part3_flash_cuda/plain_backward.hpp"
#include "part3_flash_cuda/standard_attention.hpp"
#include "part3_flash_cuda/tuning.hpp"

namespace flash {

template <class T>
using DeviceFlashBackward = void(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                                 TensorView<const T, 4> out, TensorView<const float, 3> lse, TensorView<const T, 4> d_out,
                                 TensorView<T, 4> d_q, TensorView<T, 4> d_k, TensorView<T, 4> d_v,
                                 const AttentionOptions& options, Stream stream);

// The forward pass of part 3 with a backward pass from out and lse.
template <class T, DeviceFlashBackward<T>* kBackward>
inline constexpr DeviceAttentionPasses<T> kDeviceFlash{
    .forward =
        [](TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
           TensorView<float, 3> lse, TensorView<T, 4>, const AttentionOptions& options, Stream stream) {
          flash_attention_forward_tuned_cuda<T>(q, k, v, out, lse, options, stream);
        },
    .backward =
        [](TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<const T, 4> out,
           TensorView<const float, 3> lse, TensorView<const T, 4>, TensorView<const T, 4> d_out, TensorView<T, 4> d_q,
           TensorView<T, 4> d_k, TensorView<T, 4> d_v, const AttentionOptions& options,
           Stream stream) { kBackward(q, k, v, out, lse, d_out, d_q, d_k, d_v, options, stream); }};

// With the backward pass that is given.
inline constexpr DeviceAttentionFunctions kDeviceFlashPlain{
    .float32 = kDeviceFlash<float, plain_attention_backward_cuda<float>>,
    .float16 = kDeviceFlash<Half, plain_attention_backward_cuda<Half>>,
    .bfloat16 = kDeviceFlash<BFloat16, plain_attention_backward_cuda<BFloat16>>};

// `functions`: part 3's forward pass with a backward pass of another part.
inline void register_part3_attention(DeviceAttentionRegistry& registry, const std::string& name = "flash",
                                     const DeviceAttentionFunctions& functions = kDeviceFlashPlain,
                                     const std::string& constraints = "head_dim at most 1024") {
  registry.add({.name = name,
                .device = DeviceKind::kGpu,
                .dtypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16},
                .constraints = constraints,
                .run = &functions});
}

template <class T>
inline constexpr DeviceAttentionPasses<T> kDeviceStandard{
    .forward = standard_attention_forward_cuda<T>,
    .backward =
        [](TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<const T, 4>,
           TensorView<const float, 3>, TensorView<const T, 4> p, TensorView<const T, 4> d_out, TensorView<T, 4> d_q,
           TensorView<T, 4> d_k, TensorView<T, 4> d_v, const AttentionOptions& options, Stream stream) {
          standard_attention_backward_cuda<T>(q, k, v, p, d_out, d_q, d_k, d_v, options, stream);
        }};
inline constexpr DeviceAttentionFunctions kDeviceStandardFunctions{.float32 = kDeviceStandard<float>,
                                                                   .float16 = kDeviceStandard<Half>,
                                                                   .bfloat16 = kDeviceStandard<BFloat16>,
                                                                   .saves_p = true};

// For programs on a GPU: what the emulator runs has no cuBLAS.
inline void register_standard_attention_cuda(DeviceAttentionRegistry& registry) {
  registry.add({.name = "standard",
                .device = DeviceKind::kGpu,
                .dtypes = {DType::kFloat32, DType::kFloat16, DType::kBFloat16},
                .constraints = "a contiguous last axis",
                .run = &kDeviceStandardFunctions});
}

}  // namespace flash
