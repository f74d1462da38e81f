// What part 2 enters in the registry of attention (common/attention_registry.hpp): "standard", which is given, and "flash",
// whichever of skeleton and solution the program is linked with.
#pragma once

#include <cmath>
#include <limits>

#include "common/attention_registry.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash {
namespace part2 {

// Standard attention gives no lse: its backward pass has P.
template <class T>
inline constexpr AttentionPasses<T> kStandard{
    .forward =
        [](TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
           TensorView<T, 3> lse, TensorView<T, 4> p, const AttentionOptions& options) {
          const AttentionShape shape = check_attention_forward(q, k, v, out, lse);
          standard_attention_forward<T>(q, k, v, out, p, options);
          for (Index b = 0; b < shape.batch; ++b)
            for (Index h = 0; h < shape.heads; ++h)
              for (Index i = 0; i < shape.queries; ++i) lse(b, h, i) = std::numeric_limits<T>::quiet_NaN();
        },
    .backward =
        [](TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<const T, 4>,
           TensorView<const T, 3>, TensorView<const T, 4> p, TensorView<const T, 4> d_out, TensorView<T, 4> d_q,
           TensorView<T, 4> d_k, TensorView<T, 4> d_v,
           const AttentionOptions& options) { standard_attention_backward<T>(q, k, v, p, d_out, d_q, d_k, d_v, options); }};

template <class T>
inline constexpr AttentionPasses<T> kFlash{
    .forward = [](TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<T, 4> out,
                  TensorView<T, 3> lse, TensorView<T, 4>,
                  const AttentionOptions& options) { flash_attention_forward<T>(q, k, v, out, lse, options); },
    .backward =
        [](TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<const T, 4> out,
           TensorView<const T, 3> lse, TensorView<const T, 4>, TensorView<const T, 4> d_out, TensorView<T, 4> d_q,
           TensorView<T, 4> d_k, TensorView<T, 4> d_v,
           const AttentionOptions& options) { flash_attention_backward<T>(q, k, v, out, lse, d_out, d_q, d_k, d_v, options); }};

inline constexpr AttentionFunctions kStandardFunctions{kStandard<float>, kStandard<double>, true};
inline constexpr AttentionFunctions kFlashFunctions{kFlash<float>, kFlash<double>, false};

}  // namespace part2

inline void register_part2_attention(AttentionRegistry& registry) {
  const std::vector<DType> both{DType::kFloat32, DType::kFloat64};
  registry.add(
      {.name = "standard", .device = DeviceKind::kCpu, .dtypes = both, .constraints = "", .run = &part2::kStandardFunctions});
  registry.add(
      {.name = "flash", .device = DeviceKind::kCpu, .dtypes = both, .constraints = "", .run = &part2::kFlashFunctions});
}

}  // namespace flash
