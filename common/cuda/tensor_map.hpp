// Tensor maps: what TMA (tma.hpp) has to know of a tensor, made on the host.
#pragma once

#include <type_traits>

#include "common/export.hpp"
#include "common/half.hpp"
#include "common/tensor.hpp"

namespace flash {

struct alignas(64) TensorMap {
  unsigned char bits[128];  // a CUtensorMap
};

inline constexpr int kBoxBytes = 128;  // in a row

enum class BoxElement { kFloat32, kHalf, kBFloat16 };

namespace device {

// A map of boxes of `box_rows` rows of 128 bytes of a (batch, heads, rows, columns) tensor. Throws
// ArgumentError where TMA cannot express it: `data` and all strides but the last must be multiples
// of 16 bytes, the last one 1; box_rows is 1 to 256. Throws CudaError when the driver refuses it.
FLASH_EXPORT TensorMap tensor_map(const void* data, BoxElement element, const Shape<4>& shape,
                                  const Shape<4>& strides, int box_rows);

}  // namespace device

template <class T>
TensorMap tensor_map(const TensorView<T, 4>& x, int box_rows) {
  using Element = std::remove_const_t<T>;
  constexpr BoxElement element = std::is_same_v<Element, float>  ? BoxElement::kFloat32
                                 : std::is_same_v<Element, Half> ? BoxElement::kHalf
                                                                 : BoxElement::kBFloat16;
  return device::tensor_map(x.data(), element, x.shape(), x.strides(), box_rows);
}

}  // namespace flash
