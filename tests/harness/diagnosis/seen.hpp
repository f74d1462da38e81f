// What a call of the code under test was given and what it left, in float64: all that diagnosis.hpp
// and small_problem.hpp look at.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "common/attention.hpp"
#include "common/compare.hpp"

namespace flash::harness {

inline constexpr double kPoisoned = std::numeric_limits<double>::quiet_NaN();

// How many queries and keys are taken at a time.
struct Blocks {
  Index queries = 0, keys = 0;
};

// A tensor as the call found it: with other strides it would be another. Of lse the rows of a head
// are the columns here.
struct SeenTensor {
  Tensor<double, 4> values;
  // The same memory read with other strides: whose they are, and what is then read; nothing where
  // that leaves the memory.
  struct ByOther {
    std::string other;
    Tensor<double, 4> values;
  };
  std::vector<ByOther> by_others = {};
};

// Where an output's elements come from when they are written with other strides: for each element
// the number of the one that is written to its place, in row-major order.
struct Misplaced {
  static constexpr Index kNone = -1, kSeveral = -2;
  int output;  // 0 is out and 1 is lse; or 0 to 2 are dQ, dK and dV
  std::string name, other;
  std::vector<Index> source;
};

// What all outputs of a call have: how large an error may be beside the magnitude of the terms, and
// the largest number of the type in which the code under test computes.
struct Precision {
  double bound;
  double largest;
};
template <class T>
Precision precision_of(double bound) {
  return {bound, sizeof(T) == 8 ? std::numeric_limits<double>::max()
                                : static_cast<double>(std::numeric_limits<float>::max())};
}

// A forward pass of attention, or softmax(X) V.
struct SeenForward {
  AttentionShape shape;
  AttentionOptions options = {};
  SeenTensor q = {}, k = {}, v = {};
  bool has_scores = false;  // softmax(X) V, with one head: k holds X, and q is empty
  Tensor<double, 4> out = {};
  Tensor<double, 3> lse = {};  // empty: there is none
  std::vector<Misplaced> misplaced = {};
  Precision precision;
  double lse_bound = 0;
  Index block_queries = 0, block_keys = 0;  // as the call was told; 0: unknown
  bool key_by_key = false;                  // the maximum may grow with each key of a block
  double fill = kPoisoned;                  // what the outputs held before the call
};

// A backward pass. An empty gradient was not asked for.
struct SeenBackward {
  AttentionShape shape;
  AttentionOptions options = {};
  SeenTensor q = {}, k = {}, v = {}, out = {}, d_out = {}, lse = {};
  Tensor<double, 4> d_q = {}, d_k = {}, d_v = {};
  std::vector<Misplaced> misplaced = {};
  Precision precision;
  Index block_keys = 0;
  double fill = kPoisoned;

  double lse_of(Index b, Index h, Index i) const { return lse.values(b, 0, h, i); }
};

// The same numbers in four dimensions: without heads, with one.
template <class T>
TensorView<T, 4> with_heads(TensorView<T, 3> x) {
  return {x.data(),
          {x.extent(0), 1, x.extent(1), x.extent(2)},
          {x.stride(0), 0, x.stride(1), x.stride(2)}};
}
inline Tensor<double, 4> with_heads(const Tensor<double, 4>& x) { return x; }
inline Tensor<double, 4> with_heads(const Tensor<double, 3>& x) {
  Tensor<double, 4> y({x.extent(0), 1, x.extent(1), x.extent(2)});
  std::copy_n(x.data(), x.size(), y.data());
  return y;
}

// Any tensor in float64, whatever its strides.
template <class T, int Rank>
Tensor<double, Rank> in_float64(TensorView<const T, Rank> x) {
  const auto elements = packed(x);
  Tensor<double, Rank> y(elements.shape());
  for (Index i = 0; i < y.size(); ++i) y.data()[i] = static_cast<double>(elements.data()[i]);
  return y;
}

}  // namespace flash::harness
