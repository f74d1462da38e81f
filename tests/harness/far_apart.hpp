// Two batches of a tensor that lie 2^31 elements apart, in host memory of which only the pages that
// are touched exist: an offset computed in 32 bits does not find the second.
#pragma once

#include <sys/mman.h>

#include <cmath>
#include <functional>
#include <string>

#include "common/compare.hpp"
#include "harness/graded_case.hpp"

namespace flash::harness {

class FarApart {
 public:
  static constexpr Index kApart = Index{1} << 31;

  FarApart() {
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) next_ = memory_ = static_cast<float*>(memory);
  }
  ~FarApart() {
    if (memory_ != nullptr) munmap(memory_, kBytes);
  }
  FarApart(const FarApart&) = delete;
  FarApart& operator=(const FarApart&) = delete;

  // Whether there is room for addresses.
  explicit operator bool() const { return memory_ != nullptr; }

  // An output of two batches, or an input with these values.
  template <int Rank>
  TensorView<float, Rank> tensor(const Shape<Rank>& shape) {
    auto strides = row_major_strides(shape);
    // In the middle, so that an offset that has become negative reads zeros, not what lies nowhere.
    const TensorView<float, Rank> view(next_ + kApart + kRoom, shape,
                                       (strides[0] = kApart, strides));
    next_ += element_count(shape);
    return view;
  }
  template <int Rank>
  TensorView<float, Rank> tensor(const Tensor<float, Rank>& values) {
    const auto view = tensor<Rank>(values.shape());
    const Index half = values.size() / 2;
    for (Index i = 0; i < values.size(); ++i)
      view.data()[i / half * kApart + i % half] = values.data()[i];
    return view;
  }

 private:
  static constexpr Index kRoom = Index{1} << 22;
  static constexpr std::size_t kBytes = 2 * sizeof(float) * (kApart + 2 * kRoom);
  float *memory_ = nullptr, *next_ = nullptr;
};

// Runs a case on such tensors, unless a judge does: it would copy what lies between them.
inline Verdict with_far_apart(const std::function<std::string(FarApart&)>& wrong_with) {
  FarApart memory;
  if (!memory) return {true, "not tried: no room for addresses"};
  const std::string wrong = wrong_with(memory);
  return {wrong.empty(), wrong.empty() ? ""
                                       : "The two batches of each tensor lie 2147483648 elements "
                                         "apart, so offsets need 64 bits (Index).\n" +
                                             wrong};
}

}  // namespace flash::harness
