// Tensors whose two batches lie 2^31 elements apart, in memory of which only the pages that are
// touched exist: an offset computed in 32 bits does not find the second.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>

#include "common/attention.hpp"
#include "harness/cases/graded_case.hpp"

namespace flash::harness {

class FarApart {
 public:
  explicit FarApart(Index apart);
  ~FarApart();
  FarApart(const FarApart&) = delete;
  FarApart& operator=(const FarApart&) = delete;

  // Whether there is room for addresses.
  explicit operator bool() const { return memory_ != nullptr; }

  // An output of two batches, or an input with these values.
  template <class T, int Rank>
  TensorView<T, Rank> tensor(const Shape<Rank>& shape) {
    auto strides = row_major_strides(shape);
    strides[0] = apart_ * static_cast<Index>(sizeof(float) / sizeof(T));
    const TensorView<T, Rank> view(reinterpret_cast<T*>(next_), shape, strides);
    next_ += element_count(shape);
    return view;
  }
  template <class T, int Rank>
  TensorView<T, Rank> tensor(const Tensor<T, Rank>& values) {
    const auto view = tensor<T, Rank>(values.shape());
    const Index half = values.size() / 2;
    for (Index i = 0; i < values.size(); ++i)
      view.data()[i / half * view.stride(0) + i % half] = values.data()[i];
    return view;
  }

 private:
  Index apart_;
  float *memory_ = nullptr, *next_ = nullptr;
};

inline constexpr const char* kFarApartName = "batches 2147483648 elements apart";

// wrong_with(memory) runs the code under test and says what is wrong, or "".
// The elements of `bytes` each are 2^31 apart.
Verdict with_far_apart(const std::function<std::string(FarApart&)>& wrong_with,
                       std::size_t bytes = sizeof(float));

// The same for a pass of attention.
template <class T = float>
Verdict forward_far_apart(
    std::uint64_t seed,
    const std::type_identity_t<std::function<void(const AttentionForward<T>&)>>& run);
Verdict backward_far_apart(std::uint64_t seed,
                           const std::function<void(const AttentionBackward<float>&)>& run);

}  // namespace flash::harness
