// Inputs, operations and check of one attention problem. See attention_problem.hpp.
#include "benchmarking/attention_problem.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "benchmarking/screen.hpp"
#include "common/compare.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"

namespace flash {
namespace {

// One head.
template <class T>
TensorView<const T, 4> head_of(TensorView<const T, 4> x, Index b, Index h) {
  return {&x(b, h, 0, 0), {1, 1, x.extent(2), x.extent(3)}, x.strides()};
}

}  // namespace

template <class T>
AttentionProblem<T>::AttentionProblem(const AttentionSizes& sizes, std::uint64_t seed)
    : sizes_(sizes),
      q_(normal<T>(sizes.shape().of_queries(), 4 * seed)),
      k_(normal<T>(sizes.shape().of_keys(), 4 * seed + 1)),
      v_(normal<T>(sizes.shape().of_keys(), 4 * seed + 2)),
      d_out_(normal<T>(sizes.shape().of_queries(), 4 * seed + 3)) {}

template <class T>
void AttentionProblem<T>::prepare_check() {
  // One pair of a query and a key takes the oracle about 9 ns for each column of head_dim.
  constexpr double kPairs = 1 << 20;
  const Index heads = sizes_.batch * sizes_.heads;
  const Index checked = std::clamp(static_cast<Index>(kPairs / sizes_.visible_pairs()), Index{1}, heads);
  heads_.clear();
  for (Index head = heads - checked; head < heads; ++head) {
    const Index b = head / sizes_.heads, h = head % sizes_.heads;
    heads_.push_back(head_oracle<T>(head_of(q(), b, h), head_of(k(), b, h), head_of(v(), b, h), head_of(d_out(), b, h),
                                    sizes_.causal, HeadPasses::kBoth));
    largest_score_ = std::max(largest_score_, heads_.back().largest_score);
  }
}

template <class T>
std::string AttentionProblem<T>::check_forward(TensorView<const T, 4> out) const {
  return check("out", "query", out, &HeadOracle::out, attention_output_bound<T>(sizes_.shape(), largest_score_));
}

template <class T>
std::string AttentionProblem<T>::check_backward(TensorView<const T, 4> d_q, TensorView<const T, 4> d_k,
                                                TensorView<const T, 4> d_v) const {
  const double bound = attention_gradient_bound<T>(sizes_.shape(), largest_score_);
  std::string wrong = check("d_v", "key", d_v, &HeadOracle::d_v, bound);  // the one that depends on the least
  if (wrong.empty()) wrong = check("d_q", "query", d_q, &HeadOracle::d_q, bound);
  if (wrong.empty()) wrong = check("d_k", "key", d_k, &HeadOracle::d_k, bound);
  return wrong;
}

template <class T>
std::string AttentionProblem<T>::check(const std::string& name, const std::string& rows, TensorView<const T, 4> got,
                                       HeadOracle::Result HeadOracle::*want, double bound) const {
  const Index heads = sizes_.batch * sizes_.heads, first_checked = heads - static_cast<Index>(heads_.size());
  for (Index head = 0; head < heads; ++head) {
    const Index b = head / sizes_.heads, h = head % sizes_.heads;
    const std::string where =
        format("%s of batch %lld, head %lld: ", name.c_str(), static_cast<long long>(b), static_cast<long long>(h));
    const Tensor<T, 4> elements = packed(head_of(got, b, h));
    if (head < first_checked) {
      for (Index i = 0; i < elements.size(); ++i) {
        const T value = elements.data()[i];
        if (std::isfinite(static_cast<double>(value))) continue;
        return where +
               format("%s %lld, column %lld is ", rows.c_str(), static_cast<long long>(i / sizes_.head_dim),
                      static_cast<long long>(i % sizes_.head_dim)) +
               (is_poison(value) ? "nothing (never written)"
                                 : format("%g, expected a finite number", static_cast<double>(value)));
      }
      continue;
    }

    HeadOracle::Result expected = heads_[static_cast<std::size_t>(head - first_checked)].*want;
    // Half loses up to 2^-25 of a number below 2^-14: of the result, and of the weights that it is a sum of.
    if constexpr (std::is_same_v<T, Half>)
      for (Index i = 0; i < expected.magnitude.size(); ++i)
        expected.magnitude.data()[i] += 0x1p-25 * (1 + std::sqrt(static_cast<double>(sizes_.seq_len))) / bound;
    // Of the whole head against the result, which is smaller than the terms summed: up to sqrt(n) of them cancel.
    double squares = 0, magnitude_squares = 0;
    for (Index i = 0; i < expected.value.size(); ++i) {
      squares += expected.value.data()[i] * expected.value.data()[i];
      magnitude_squares += expected.magnitude.data()[i] * expected.magnitude.data()[i];
    }
    const CompareOptions options{.max_scaled = bound,
                                 .max_frobenius = squares > 0 ? bound * std::sqrt(magnitude_squares / squares) : 0,
                                 .axes = {rows, "column"},
                                 .blocks = {},
                                 .magnitude = expected.magnitude.data()};
    const Comparison comparison = compare(elements.data(), expected.value.data(), {sizes_.seq_len, sizes_.head_dim}, options);
    if (comparison.pass) continue;
    std::string text = where + comparison.text;
    for (std::size_t end; (end = text.find('\n')) != std::string::npos;) text.replace(end, 1, "; ");
    return text;
  }
  return "";
}

template class AttentionProblem<float>;
template class AttentionProblem<double>;
template class AttentionProblem<Half>;
template class AttentionProblem<BFloat16>;

}  // namespace flash
