// What a call of the code under test was given and what it left, in float64: all that diagnosis.hpp
// and small_problem.hpp look at.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "common/attention.hpp"
#include "common/compare.hpp"
#include "common/steps.hpp"

namespace flash::harness {

struct Mistake;  // mistakes.hpp

inline const double kPoisoned = poison<double>();

// A tensor as the call found it, and what the call would read with wrong strides. An lse has here
// one row for each head, with the head's queries as columns.
struct SeenTensor {
  Tensor<double, 4> values;
  // The same memory read with the strides of the tensor `other`: `values` is what is then read, and
  // empty if the reads leave the memory.
  struct ByOther {
    std::string other;
    Tensor<double, 4> values;
  };
  std::vector<ByOther> by_others = {};
};

// What an output holds when it is written with the strides of the tensor `other`: for each element,
// `source` has the number, in row-major order, of the element that is written to its place.
struct Misplaced {
  static constexpr Index kNone = -1, kSeveral = -2;
  Output output;
  std::string name, other;
  std::vector<Index> source;
};

// What all outputs of a call share: how large an error may be, relative to the magnitude of the
// terms, and the largest number of the type in which the code under test computes.
struct Precision {
  double bound;
  double largest;
};
template <class T>
Precision precision_of(double bound) {
  return {bound, sizeof(T) == 8 ? std::numeric_limits<double>::max()
                                : static_cast<double>(std::numeric_limits<float>::max())};
}

// An output as it was found, and how large an error may be, relative to the magnitude of its terms.
struct Found {
  Output output;
  const char* name;
  const double* got;
  Index rows, columns;
  double bound;
};

// `bound` is relative to the magnitude.
inline bool is_near(double got, const StepRow& want, std::size_t column, double bound) {
  const double value = want.value[column], magnitude = want.magnitude[column];
  if (magnitude == StepRow::kUnknown) return true;
  // What holds its old contents differs from what became NaN, unless both were added up.
  if (std::isnan(value))
    return std::isnan(got) && (magnitude == StepRow::kAnyNaN || is_poison(got) == is_poison(value));
  if (std::isinf(value)) return got == value;
  return std::fabs(got - value) <= bound * magnitude + 1e-37;
}

// A forward pass of attention, or softmax(X) V.
struct SeenForward {
  AttentionShape shape;
  AttentionOptions options = {};
  SeenTensor q = {}, k = {}, v = {};
  bool has_scores = false;     // softmax(X) V, with one head: k holds X, and q is empty
  Tensor<double, 4> out = {};  // empty: it was not asked for
  Tensor<double, 3> lse = {};  // empty: there is none
  std::vector<Misplaced> misplaced = {};
  Precision precision;
  double lse_bound = 0;
  Index block_queries = 0, block_keys = 0;  // as the call was told; 0: unknown
  bool key_by_key = false;                  // the maximum may grow with each key of a block
  double fill = kPoisoned;                  // what the outputs held before the call
  // Code that is written in part can be tried on this shape and on its own, and on no other.
  std::optional<AttentionShape> also_solved = std::nullopt;
  // Adds the mistakes that only this task can have to those that mistakes.hpp knows.
  std::function<void(std::vector<Mistake>& known)> own_mistakes = {};
  Index mask_offset = 0;  // Given's

  Given given() const {
    return {shape,     options,    {&q.values, &k.values, &v.values}, has_scores, precision.largest,
            lse_bound, mask_offset};
  }
  std::vector<Found> found() const {
    const Index rows = shape.batch * shape.heads * shape.queries;
    std::vector<Found> found;
    if (out.size() > 0)
      found.push_back({Output::kOut, "out", out.data(), rows, v.values.extent(3), precision.bound});
    if (lse.size() > 0) found.push_back({Output::kLse, "lse", lse.data(), rows, 1, lse_bound});
    return found;
  }
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

  Given given() const {
    const auto* const dO = &d_out.values;
    return {shape,
            options,
            {&q.values, &k.values, &v.values, &out.values, &lse.values, dO, dO, dO},
            false,
            precision.largest};
  }
  std::vector<Found> found() const {
    std::vector<Found> found;
    for (const auto& [output, name, gradient] : {std::tuple{Output::kDQ, "dQ", &d_q},
                                                 {Output::kDK, "dK", &d_k},
                                                 {Output::kDV, "dV", &d_v}})
      if (gradient->size() > 0)
        found.push_back({output, name, gradient->data(), gradient->size() / gradient->extent(3),
                         gradient->extent(3), precision.bound});
    return found;
  }
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
  for (Index i = 0; i < y.size(); ++i)
    y.data()[i] =
        is_poison(elements.data()[i]) ? kPoisoned : static_cast<double>(elements.data()[i]);
  return y;
}

}  // namespace flash::harness
