// Compares a result with the oracle, and says in words what is wrong. NaN never passes.
//
//   scaled max error          max over all elements of |got - want| / scale
//   relative Frobenius error  sqrt(sum |got - want|^2) / sqrt(sum |want|^2)
//
// `scale` is the magnitude of the terms that were summed up (softmax_matmul_magnitude), if the
// caller gives it. Then an element in which large terms cancel need not have more digits than it
// can have. Otherwise `scale` is the root mean square of `want`.
#pragma once

#include <string>
#include <vector>

#include "common/tensor.hpp"

namespace flash {

struct CompareOptions {
  double max_scaled = 0;          // the largest scaled error that passes
  double max_frobenius = 0;       // the largest relative Frobenius error that passes
  std::vector<std::string> axes;  // what the axes are called, "batch", "row", "column"
  std::vector<Index> blocks;  // the block size along each axis, so that the verdict can name the
                              // block; 0 where none
  const double* magnitude = nullptr;  // row-major, the shape of `want`
};

struct Comparison {
  bool pass = false;
  double scaled_max = 0;  // NaN when anything is NaN
  double frobenius = 0;
  Index wrong = 0;   // elements beyond max_scaled, NaN and infinite ones included
  std::string text;  // one line when it passes; else what, where, how many, and the pattern
};

// `got` is row-major and has `shape`'s elements, like `want`. An element whose `want` is not finite
// never passes: check such elements separately. Throws ArgumentError when the options do not fit
// the shape. T is float, double, Half or BFloat16, here and below.
template <class T>
FLASH_EXPORT Comparison compare(const T* got, const double* want, const std::vector<Index>& shape,
                                const CompareOptions& options);

template <int Rank, class T>
Comparison compare(TensorView<T, Rank> got, const Tensor<double, Rank>& want,
                   const CompareOptions& options);

// The max_frobenius that follows when each element may be off by `bound` times its magnitude. It is
// larger than `bound`, because terms cancel in a sum and the result is smaller than they are. It is
// infinite when all of `want` is 0.
template <int Rank>
FLASH_EXPORT double frobenius_bound(double bound, const Tensor<double, Rank>& want,
                                    const Tensor<double, Rank>& magnitude);

// Outputs are filled with this value before a call: a NaN with a payload of its own. So an element
// that was never written differs from an element that became NaN.
template <class T = float>
FLASH_EXPORT T poison() noexcept;
template <class T>
FLASH_EXPORT bool is_poison(T value) noexcept;

// This value, another NaN, lies around inputs, so that a result that was computed from it can be
// recognised. (A CPU keeps a NaN's payload through arithmetic. A GPU does not, so there the result
// is a NaN like any other.)
template <class T = float>
FLASH_EXPORT T outside_value() noexcept;
template <class T>
FLASH_EXPORT bool is_outside_value(T value) noexcept;

// ---- implementation of the template -------------------------------------------------------------

// A row-major copy of a view.
template <class T, int Rank>
Tensor<std::remove_const_t<T>, Rank> packed(TensorView<T, Rank> view) {
  Tensor<std::remove_const_t<T>, Rank> copy(view.shape());
  Index index[Rank] = {};
  for (Index flat = 0; flat < copy.size(); ++flat) {
    Index offset = 0;
    for (int axis = 0; axis < Rank; ++axis) offset += index[axis] * view.stride(axis);
    copy.data()[flat] = view.data()[offset];
    for (int axis = Rank - 1; axis >= 0 && ++index[axis] == view.extent(axis); --axis)
      index[axis] = 0;
  }
  return copy;
}

template <int Rank, class T>
Comparison compare(TensorView<T, Rank> got, const Tensor<double, Rank>& want,
                   const CompareOptions& options) {
  if (got.shape() != want.shape())
    throw ShapeError("got has shape " + to_string<Rank>(got.shape()) + "; it must be want's, " +
                     to_string<Rank>(want.shape()));
  const Tensor<std::remove_const_t<T>, Rank> row_major = packed(got);
  return compare(row_major.data(), want.data(), {want.shape().begin(), want.shape().end()},
                 options);
}

}  // namespace flash
