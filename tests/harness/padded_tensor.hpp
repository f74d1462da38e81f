// A tensor inside a larger buffer that holds NaN all around: before, behind, and between the elements of a strided view.
// Reads outside of an input give NaN; writes outside of an output are found, for host code and, through a copy of the buffer, for device code.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "common/compare.hpp"
#include "common/tensor.hpp"

namespace flash::harness {

// How the elements of a (batch, rows, columns) tensor lie in memory.
enum class Layout {
  kRowMajor,
  kPaddedRows,   // rows are 5 elements further apart than they are long
  kTransposed,   // the last two axes change places: columns are contiguous
  kSpread,       // every third element; batches 7 further apart
};

inline std::string to_string(Layout layout) {
  switch (layout) {
    case Layout::kRowMajor: return "row-major";
    case Layout::kPaddedRows: return "padded rows";
    case Layout::kTransposed: return "transposed";
    case Layout::kSpread: return "spread";
  }
  return "unknown";
}

inline Shape<3> strides_of(const Shape<3>& shape, Layout layout) {
  const auto [batch, rows, columns] = shape;
  switch (layout) {
    case Layout::kRowMajor: return {rows * columns, columns, 1};
    case Layout::kPaddedRows: return {rows * (columns + 5), columns + 5, 1};
    case Layout::kTransposed: return {rows * columns, 1, rows};
    case Layout::kSpread: return {3 * rows * columns + 7, 3 * columns, 3};
  }
  return {};
}

class PaddedTensor {
 public:
  // Elements of `guard` poison lie before and behind the tensor: more than a vector instruction or a block of threads overshoots.
  static constexpr Index kGuard = 1024;

  // An output: poison everywhere.
  PaddedTensor(const Shape<3>& shape, Layout layout, float around = poison())
      : shape_(shape), strides_(strides_of(shape, layout)) {
    Index last = 0;
    for (int axis = 0; axis < 3; ++axis) last += std::max<Index>(shape[axis] - 1, 0) * strides_[axis];
    buffer_.assign(static_cast<std::size_t>(2 * kGuard + last + 1), around);
  }

  // An input: the values, NaNs of another kind around them.
  PaddedTensor(const Tensor<float, 3>& values, Layout layout) : PaddedTensor(values.shape(), layout, outside_value()) {
    const auto target = view_in(buffer_.data());
    for (Index b = 0; b < shape_[0]; ++b)
      for (Index i = 0; i < shape_[1]; ++i)
        for (Index j = 0; j < shape_[2]; ++j) target(b, i, j) = values(b, i, j);
  }

  // The whole buffer, to be copied to a device and back.
  std::vector<float>& buffer() { return buffer_; }
  const std::vector<float>& buffer() const { return buffer_; }

  // The tensor inside `base`, which is this buffer or a copy of it.
  TensorView<float, 3> view_in(float* base) const { return {base + kGuard, shape_, strides_}; }
  TensorView<float, 3> view() { return view_in(buffer_.data()); }

  // For each place of the buffer, whether it is an element of the tensor.
  std::vector<bool> elements() const {
    std::vector<bool> inside(buffer_.size());
    for (Index b = 0; b < shape_[0]; ++b)
      for (Index i = 0; i < shape_[1]; ++i)
        for (Index j = 0; j < shape_[2]; ++j) inside[kGuard + b * strides_[0] + i * strides_[1] + j * strides_[2]] = true;
    return inside;
  }

  // Of an output: says what is wrong when anything outside of the tensor is not poison any more.
  std::optional<std::string> written_outside() const {
    const std::vector<bool> inside = elements();
    const Index end = static_cast<Index>(buffer_.size()) - kGuard;
    for (Index k = 0; k < static_cast<Index>(buffer_.size()); ++k) {
      if (inside[k] || is_poison(buffer_[k])) continue;
      const std::string value = ", with the value " + std::to_string(buffer_[k]);
      if (k < kGuard) return std::to_string(kGuard - k) + " elements before its first element" + value;
      if (k >= end) return std::to_string(k - end + 1) + " elements behind its last element" + value;
      return "between its elements, " + std::to_string(k - kGuard) + " elements after the first" + value;
    }
    return std::nullopt;
  }

  // Whether the buffers are equal bit by bit: == would call two NaNs different.
  bool same_bits(const PaddedTensor& other) const {
    return buffer_.size() == other.buffer_.size() &&
           std::memcmp(buffer_.data(), other.buffer_.data(), sizeof(float) * buffer_.size()) == 0;
  }

 private:
  Shape<3> shape_;
  Shape<3> strides_;
  std::vector<float> buffer_;
};

}  // namespace flash::harness
