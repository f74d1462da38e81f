// A tensor inside a larger buffer that holds NaN all around: before, behind, and between the
// elements of a strided view. Reads outside of an input give NaN; writes outside of an output are
// found, for host code and, through a copy of the buffer, for device code.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "common/compare.hpp"
#include "common/tensor.hpp"

// AddressSanitizer's, where the program has it or ./lab check --sanitize preloads it; else null.
#ifdef __linux__
extern "C" {
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* memory, std::size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* memory, std::size_t bytes);
}
#endif

namespace flash::harness {

// Whether AddressSanitizer reports accesses of this process around a tensor. Not in a judge: it
// copies the surroundings to its runner, which forbids them there.
inline bool forbids_surroundings = true;

// How the elements of a tensor lie in memory. The last two axes are rows and columns; in front of
// them is a batch, or batch and heads.
enum class Layout {
  kRowMajor,
  kPaddedRows,        // rows are 5 elements further apart than they are long
  kTransposed,        // the last two axes change places: columns are contiguous
  kSpread,            // every third element; batches 7 further apart
  kInterleavedHeads,  // (batch, rows, heads, columns) in memory, as a projection to heads * columns
                      // leaves them; without heads: row-major
  kBroadcast,         // of k (in part 1 v) and d_out one head (batch) stands for all: strides of 0
  kMixed,             // of the tensors of a call: another layout for each, see layout_of()
};

// The layout of tensor number `number` of a call whose layout is `layout`. Of the mixed ones only
// 0 and 5, 1 and 6, ... are equal, and these are of different shapes.
inline Layout layout_of(Layout layout, int number) {
  constexpr Layout kEach[] = {Layout::kPaddedRows, Layout::kTransposed, Layout::kSpread,
                              Layout::kInterleavedHeads, Layout::kRowMajor};
  if (layout == Layout::kBroadcast && number != 1 && number != 4) return Layout::kRowMajor;
  return layout == Layout::kMixed ? kEach[number % 5] : layout;
}

template <std::size_t Rank>
std::array<Index, Rank> strides_of(const std::array<Index, Rank>& shape, Layout layout) {
  static_assert(Rank >= 3);
  const Index rows = shape[Rank - 2], columns = shape[Rank - 1];
  if constexpr (Rank == 4)
    if (layout == Layout::kInterleavedHeads)
      return {rows * shape[1] * columns, columns, shape[1] * columns, 1};
  if (layout == Layout::kBroadcast) {
    std::array<Index, Rank> strides{rows * columns};
    strides[Rank - 3] = 0, strides[Rank - 2] = columns, strides[Rank - 1] = 1;
    return strides;
  }
  std::array<Index, Rank> strides{};
  Index matrix = rows * columns;  // from one to the next
  Index row = columns, column = 1;
  switch (layout) {
    case Layout::kRowMajor:
    case Layout::kMixed:
    case Layout::kBroadcast:
    case Layout::kInterleavedHeads: break;
    case Layout::kPaddedRows: row = columns + 5, matrix = rows * row; break;
    case Layout::kTransposed: row = 1, column = rows; break;
    case Layout::kSpread: column = 3, row = 3 * columns, matrix = rows * row + 7; break;
  }
  strides[Rank - 1] = column;
  strides[Rank - 2] = row;
  for (int axis = static_cast<int>(Rank) - 3; axis >= 0; --axis, matrix *= shape[axis + 1])
    strides[axis] = matrix;
  return strides;
}

// Makes all heads, or batches, equal that are one in memory.
template <class T, std::size_t Rank>
void share(Tensor<T, static_cast<int>(Rank)>& x, const std::array<Index, Rank>& strides) {
  const auto& shape = x.shape();
  if (strides[Rank - 3] != 0) return;
  const Index matrix = shape[Rank - 2] * shape[Rank - 1];
  for (Index n = 0; n < x.size(); ++n)
    x.data()[n] = x.data()[n / matrix / shape[Rank - 3] * shape[Rank - 3] * matrix + n % matrix];
}
template <class T, int Rank>
Tensor<T, Rank> shared_in(Layout layout, int number, Tensor<T, Rank> x) {
  share<T, Rank>(x, strides_of(x.shape(), layout_of(layout, number)));
  return x;
}

// use(offset from the first element) for each element, in row-major order.
template <int Rank, class Use>
void for_each_offset(const Shape<Rank>& shape, const Shape<Rank>& strides, Use use) {
  Index index[Rank] = {}, offset = 0;
  for (Index left = element_count(shape); left > 0; --left) {
    use(offset);
    for (int axis = Rank - 1; axis >= 0; --axis) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= shape[axis] * strides[axis];
      index[axis] = 0;
    }
  }
}

// Of float or double. The rank is 3, or 4 with heads.
template <class T = float, int Rank = 3>
class BasicPaddedTensor {
 public:
  // Elements of `guard` poison lie before and behind the tensor: more than a vector instruction or
  // a block of threads overshoots.
  static constexpr Index kGuard = 1024;

  // An output: poison everywhere. The first element is `shift` elements behind an aligned address.
  BasicPaddedTensor(const Shape<Rank>& shape, Layout layout, Index shift = 0,
                    T around = poison<T>())
      : shape_(shape), strides_(strides_of(shape, layout)), first_(kGuard + shift) {
    Index last = 0;
    for (int axis = 0; axis < Rank; ++axis)
      last += std::max<Index>(shape[axis] - 1, 0) * strides_[axis];
    buffer_.assign(static_cast<std::size_t>(first_ + last + 1 + kGuard), around);
  }

  // An input: the values, NaNs of another kind around them.
  BasicPaddedTensor(const Tensor<T, Rank>& values, Layout layout, Index shift = 0)
      : BasicPaddedTensor(values.shape(), layout, shift, outside_value<T>()) {
    Index flat = 0;
    for_each_place([&](std::size_t place) { buffer_[place] = values.data()[flat++]; });
  }

  // The whole buffer, to be copied to a device and back.
  std::vector<T>& buffer() { return buffer_; }
  const std::vector<T>& buffer() const { return buffer_; }

  // The tensor inside `base`, which is this buffer or a copy of it.
  TensorView<T, Rank> view_in(T* base) const { return {base + first_, shape_, strides_}; }
  TensorView<T, Rank> view() { return view_in(buffer_.data()); }

  // For each place of the buffer, whether it is an element of the tensor.
  std::vector<bool> elements() const {
    std::vector<bool> inside(buffer_.size());
    for_each_place([&](std::size_t place) { inside[place] = true; });
    return inside;
  }

  // Of the output `name`: says what is wrong when anything outside of the tensor is not poison any
  // more, "" when nothing is.
  std::string written_outside(const std::string& name) const {
    const std::vector<bool> inside = elements();
    const auto size = static_cast<Index>(buffer_.size());
    Index first = -1, count = 0;
    for (Index k = 0; k < size; ++k) {
      if (inside[k] || is_poison(buffer_[k])) continue;
      if (count++ == 0) first = k;
    }
    if (count == 0) return "";
    const Index behind = first - (size - kGuard) + 1, before = first_ - first;
    const auto places = [](Index n) { return std::to_string(n) + (n == 1 ? " place" : " places"); };
    const std::string where = before > 0 ? places(before) + " before its first element"
                              : behind > 0
                                  ? places(behind) + " after its last element"
                                  : "between its elements, " + places(-before) + " after the first";
    return "It writes outside of `" + name + "`, to " + std::to_string(count) +
           (count == 1 ? " place: " : " places. The first is ") + where + ", with the value " +
           std::to_string(buffer_[first]) + ".";
  }

  // Tells AddressSanitizer, where it is there, to report accesses before the first element and
  // after the last one, or to let them be.
  void forbid_ends([[maybe_unused]] bool forbid) {
#ifdef __linux__
    const auto tell = forbid ? __asan_poison_memory_region : __asan_unpoison_memory_region;
    if (tell == nullptr || !forbids_surroundings) return;
    for (T* const begin : {buffer_.data(), buffer_.data() + buffer_.size() - kGuard})
      tell(begin, sizeof(T) * kGuard);
#endif
  }

  // Whether the buffers are equal bit by bit: == would call two NaNs different.
  bool same_bits(const BasicPaddedTensor& other) const {
    return buffer_.size() == other.buffer_.size() &&
           std::memcmp(buffer_.data(), other.buffer_.data(), sizeof(T) * buffer_.size()) == 0;
  }

 private:
  // Calls use(place in the buffer) for each element, in row-major order.
  template <class Use>
  void for_each_place(Use use) const {
    for_each_offset<Rank>(shape_, strides_,
                          [&](Index offset) { use(static_cast<std::size_t>(first_ + offset)); });
  }

  Shape<Rank> shape_;
  Shape<Rank> strides_;
  Index first_;  // place of the first element
  std::vector<T> buffer_;
};

using PaddedTensor = BasicPaddedTensor<>;

}  // namespace flash::harness
