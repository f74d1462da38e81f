// Names a mistake: compares a wrong result with what the oracle's formulas give in float64 with one
// mistake built in, or two.
//
// A mistake is named when what it gives equals the result, in rows that are wrong and in rows that
// are right, no other known mistake gives the same, and what the code under test then gives for
// other problems (probes) is what the mistake gives there too. A wrong name would be worse than
// none.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/attention.hpp"
#include "harness/attention_data.hpp"
#include "harness/graded_case.hpp"

namespace flash::harness {

inline constexpr double kPoisoned = std::numeric_limits<double>::quiet_NaN();

// A tensor as the call found it, in float64: with another tensor's strides it would be another.
struct SeenTensor {
  Tensor<double, 4> values;
  // The same memory read by strides of another tensor, by all of them or by those of the last two
  // axes: its name, and what is then read; nothing where that leaves the memory.
  struct ByOther {
    std::string other;
    Tensor<double, 4> values;
  };
  std::vector<ByOther> by_others = {};
};

// What all outputs of a call have: how large an error may be beside the magnitude of the terms, and
// the largest number of the type in which the code under test computes.
struct Precision {
  double bound;
  double largest;  // of the type that is computed in
};
template <class T>
Precision precision_of(double bound) {
  return {bound, sizeof(T) == 8 ? std::numeric_limits<double>::max()
                                : static_cast<double>(std::numeric_limits<float>::max())};
}

// A forward pass of attention, or softmax(X) V: then q and k are empty, and `scores` holds X with
// one head.
struct SeenForward {
  AttentionShape shape;
  AttentionOptions options = {};
  SeenTensor q = {}, k = {}, v = {};
  Tensor<double, 4> scores = {};
  Tensor<double, 4> out = {};
  Tensor<double, 3> lse = {};  // empty: there is none
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
  SeenTensor q = {}, k = {}, v = {}, out = {}, d_out = {};
  Tensor<double, 3> lse = {};
  Tensor<double, 4> d_q = {}, d_k = {}, d_v = {};
  Precision precision;
  Index block_keys = 0;
  double fill = kPoisoned;
};

// Another problem for the code under test, with the options of the case that failed.
struct Probe {
  AttentionShape shape;
  Data data;
  double fill = kPoisoned;  // of the outputs
  Index block = 0;          // of queries and of keys, where a call is told; 0: as in the case
};

// Success where `wrong` is ""; a failure, and how to explain it. `again` runs the code under test.
template <class Seen>
Verdict explained(const std::string& wrong, const Seen& seen,
                  const std::function<Seen(const Probe&)>& again);

// The same numbers in four dimensions: without heads, with one.
inline Tensor<double, 4> with_heads(const Tensor<double, 4>& x) { return x; }
Tensor<double, 4> with_heads(const Tensor<double, 3>& x);

// Any tensor in float64, whatever its strides.
template <class T, int Rank>
Tensor<double, Rank> in_float64(TensorView<const T, Rank> x);

}  // namespace flash::harness
