// Strided views, and tensors that own aligned host memory.
//
// A TensorView is a pointer with a shape and strides, both counted in elements. It owns nothing, is
// copied by value, and may point to host or device memory: kernels take it as an argument and index
// it as x(b, i, j).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "common/error.hpp"

#ifdef __CUDACC__
#define FLASH_HOST_DEVICE __host__ __device__
#else
#define FLASH_HOST_DEVICE
#endif

namespace flash {

// Extents, strides and offsets: 64 bits wide, so that batch * heads * sequence * head_dim cannot
// overflow.
using Index = std::int64_t;

template <int Rank>
using Shape = std::array<Index, Rank>;

// The part of these templates that is the same for any rank and type is compiled once, in
// tensor.cpp, because every file includes this one.
namespace any_rank {
FLASH_EXPORT std::string to_string(const Index* shape, int rank);
FLASH_EXPORT Index element_count(const Index* shape, int rank);
// Throws OutOfMemory.
FLASH_EXPORT void* allocate(const Index* shape, int rank, std::size_t element_size,
                            std::size_t alignment);
}  // namespace any_rank

// "(2, 3, 4)"
template <int Rank>
std::string to_string(const std::array<Index, Rank>& shape) {
  return any_rank::to_string(shape.data(), Rank);
}

// The number of elements. Throws ShapeError for a negative extent and for a product that does not
// fit 63 bits.
template <std::size_t Rank>
Index element_count(const std::array<Index, Rank>& shape) {
  return any_rank::element_count(shape.data(), Rank);
}

// Row-major strides: the last axis is contiguous.
template <std::size_t Rank>
std::array<Index, Rank> row_major_strides(const std::array<Index, Rank>& shape) {
  std::array<Index, Rank> strides{};
  Index step = 1;
  for (int axis = static_cast<int>(Rank) - 1; axis >= 0; --axis) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

template <class T, int Rank>
class TensorView {
 public:
  TensorView() = default;

  // A view with explicit strides, in elements. Strides may be anything that stays inside the
  // allocation: 0 broadcasts.
  TensorView(T* data, const Shape<Rank>& shape, const Shape<Rank>& strides) : data_(data) {
    (void)element_count(shape);
    for (int axis = 0; axis < Rank; ++axis) {
      shape_[axis] = shape[axis];
      strides_[axis] = strides[axis];
    }
  }

  // A row-major view.
  TensorView(T* data, const Shape<Rank>& shape)
      : TensorView(data, shape, row_major_strides(shape)) {}

  // A view of mutable elements is also a view of const ones.
  template <class Mutable>
  requires(std::is_const_v<T>&& std::is_same_v<Mutable, std::remove_const_t<T>>)
      TensorView(const TensorView<Mutable, Rank>& other)
      : TensorView(other.data(), other.shape(), other.strides()) {}

  FLASH_HOST_DEVICE T* data() const { return data_; }
  FLASH_HOST_DEVICE Index extent(int axis) const { return shape_[axis]; }
  FLASH_HOST_DEVICE Index stride(int axis) const { return strides_[axis]; }

  Shape<Rank> shape() const { return copy_of(shape_); }
  Shape<Rank> strides() const { return copy_of(strides_); }
  Index size() const { return element_count(shape()); }

  template <class... Indices>
  requires(sizeof...(Indices) == Rank) FLASH_HOST_DEVICE T& operator()(Indices... indices) const {
    // A fold, not a loop over the axes: -O2 leaves a loop in, in the middle of every inner loop of
    // a caller.
    Index offset = 0;
    int axis = 0;
    ((offset += static_cast<Index>(indices) * strides_[axis++]), ...);
    return data_[offset];
  }

 private:
  // Plain arrays: std::array's members cannot be called in device code.
  static Shape<Rank> copy_of(const Index (&values)[Rank]) {
    Shape<Rank> copy{};
    for (int axis = 0; axis < Rank; ++axis) copy[axis] = values[axis];
    return copy;
  }

  T* data_ = nullptr;
  Index shape_[Rank] = {};
  Index strides_[Rank] = {};
};

// Whether all rows of x can be read in chunks of `elements` elements, aligned to their size: by TMA
// (16 bytes), or as float4. A row's last chunk may be partly outside.
template <class T, int Rank>
bool rows_in_chunks(const TensorView<T, Rank>& x, Index elements) {
  const auto bytes = static_cast<std::uintptr_t>(elements) * sizeof(T);
  bool result = (x.stride(Rank - 1) == 1 || x.extent(Rank - 1) == 1) &&
                reinterpret_cast<std::uintptr_t>(x.data()) % bytes == 0;
  for (int axis = 0; axis < Rank - 1; ++axis)
    result = result && (x.extent(axis) == 1 || x.stride(axis) % elements == 0);
  return result;
}

// Owns row-major host memory, aligned to a cache line (64 bytes); elements start as T{}.
// Throws OutOfMemory when the memory cannot be had.
template <class T, int Rank>
class Tensor {
 public:
  static constexpr std::size_t kAlignment = 64;

  Tensor() = default;
  explicit Tensor(const Shape<Rank>& shape) : shape_(shape), size_(element_count(shape)) {
    data_ = static_cast<T*>(any_rank::allocate(shape.data(), Rank, sizeof(T), kAlignment));
    for (Index i = 0; i < size_; ++i) new (data_ + i) T{};
  }
  Tensor(const Tensor& other) : Tensor(other.shape_) {
    for (Index i = 0; i < size_; ++i) data_[i] = other.data_[i];
  }
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor other) noexcept {
    swap(other);
    return *this;
  }
  ~Tensor() { ::operator delete (data_, std::align_val_t{kAlignment}); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  Index size() const { return size_; }
  const Shape<Rank>& shape() const { return shape_; }
  Index extent(int axis) const { return shape_[axis]; }

  TensorView<T, Rank> view() { return {data_, shape_}; }
  TensorView<const T, Rank> view() const { return {data_, shape_}; }

  template <class... Indices>
  requires(sizeof...(Indices) == Rank) T& operator()(Indices... indices) {
    return data_[offset_of(indices...)];
  }
  template <class... Indices>
  requires(sizeof...(Indices) == Rank) const T& operator()(Indices... indices) const {
    return data_[offset_of(indices...)];
  }

 private:
  static_assert(std::is_trivially_destructible_v<T>, "a Tensor holds numbers");

  template <class... Indices>
  Index offset_of(Indices... indices) const {
    Index offset = 0;
    int axis = 0;
    ((offset = offset * shape_[axis++] + static_cast<Index>(indices)), ...);
    return offset;
  }

  void swap(Tensor& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(shape_, other.shape_);
    std::swap(size_, other.size_);
  }

  T* data_ = nullptr;
  Shape<Rank> shape_{};
  Index size_ = 0;
};

}  // namespace flash
