// Inputs, operations and check of one attention problem. See attention_problem.hpp.
#include "benchmarking/attention_problem.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include "benchmarking/screen.hpp"
#include "common/compare.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"

namespace flash {
namespace {

template <class T>
Tensor<T, 4> normal_input(const Shape<4>& shape, std::uint64_t seed) {
  Tensor<T, 4> x(shape);
  Random random(seed);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<T>(random.normal());
  return x;
}

// Rows [first, first + rows) of one head.
template <class T>
TensorView<const T, 4> rows_of(TensorView<const T, 4> x, Index b, Index h, Index first, Index rows) {
  return {&x(b, h, first, 0), {1, 1, rows, x.extent(3)}, x.strides()};
}

// to[row, :] += from, a whole tensor, for the rows from `first` on.
void add(Tensor<double, 2>& to, Index first, const Tensor<double, 4>& from) {
  double* const start = to.data() + first * to.extent(1);
  for (Index i = 0; i < from.size(); ++i) start[i] += from.data()[i];
}

}  // namespace

template <class T>
AttentionProblem<T>::AttentionProblem(const AttentionSizes& sizes, std::uint64_t seed)
    : sizes_(sizes),
      q_(normal_input<T>(sizes.shape().of_queries(), 4 * seed)),
      k_(normal_input<T>(sizes.shape().of_keys(), 4 * seed + 1)),
      v_(normal_input<T>(sizes.shape().of_keys(), 4 * seed + 2)),
      d_out_(normal_input<T>(sizes.shape().of_queries(), 4 * seed + 3)) {}

template <class T>
void AttentionProblem<T>::prepare_check() {
  // One pair of a query and a key takes the oracle about 9 ns for each column of head_dim.
  constexpr double kPairs = 1 << 20;
  const Index heads = sizes_.batch * sizes_.heads;
  const Index checked = std::clamp(static_cast<Index>(kPairs / sizes_.visible_pairs()), Index{1}, heads);
  heads_.clear();
  for (Index head = heads - checked; head < heads; ++head)
    heads_.push_back(expected_head(head / sizes_.heads, head % sizes_.heads));
}

// The oracle keeps all of P, 2 GiB for 16384 keys. So it gets a few queries at a time; what each adds to d_k and d_v is summed
// up here. With the causal mask that is one query and the keys that it sees: more queries would need a mask that does not begin
// at query 0.
template <class T>
typename AttentionProblem<T>::Head AttentionProblem<T>::expected_head(Index b, Index h) {
  const Index n = sizes_.seq_len, step = sizes_.causal ? 1 : 64;
  const Shape<2> shape{n, sizes_.head_dim};
  const auto zeros = [&] { return Expected{Tensor<double, 2>(shape), Tensor<double, 2>(shape)}; };
  Head head{zeros(), zeros(), zeros(), zeros()};

  std::atomic<Index> next{0};
  std::mutex mutex;  // of everything below, and of head.d_k, head.d_v and largest_score_
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      Expected d_k = zeros(), d_v = zeros();
      double largest_score = 0;
      for (Index i = next.fetch_add(step); i < n; i = next.fetch_add(step)) {
        const Index queries = std::min(step, n - i), keys = sizes_.causal ? i + 1 : n;
        const auto q = rows_of(this->q(), b, h, i, queries), d_out = rows_of(this->d_out(), b, h, i, queries);
        const auto k = rows_of(this->k(), b, h, 0, keys), v = rows_of(this->v(), b, h, 0, keys);
        const auto forward = attention_oracle(q, k, v);
        const auto backward = attention_backward_oracle(q, k, v, d_out);
        add(head.out.value, i, forward.out.value);
        add(head.out.magnitude, i, forward.out.magnitude);
        add(head.d_q.value, i, backward.d_q.value);
        add(head.d_q.magnitude, i, backward.d_q.magnitude);
        add(d_k.value, 0, backward.d_k.value);
        add(d_k.magnitude, 0, backward.d_k.magnitude);
        add(d_v.value, 0, backward.d_v.value);
        add(d_v.magnitude, 0, backward.d_v.magnitude);
        largest_score = std::max(largest_score, forward.largest_score);
      }
      const std::lock_guard lock(mutex);
      for (const auto& [sum, part] : {std::pair{&head.d_k, &d_k}, {&head.d_v, &d_v}})
        for (Index i = 0; i < part->value.size(); ++i) {
          sum->value.data()[i] += part->value.data()[i];
          sum->magnitude.data()[i] += part->magnitude.data()[i];
        }
      largest_score_ = std::max(largest_score_, largest_score);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned thread = 1; thread < std::thread::hardware_concurrency(); ++thread) threads.emplace_back(work);
  work();
  threads.clear();  // joins
  if (failure) std::rethrow_exception(failure);
  return head;
}

template <class T>
std::string AttentionProblem<T>::check_forward(TensorView<const T, 4> out) const {
  return check("out", "query", out, &Head::out, attention_bound(sizes_.shape(), largest_score_, unit_roundoff<T>()));
}

template <class T>
std::string AttentionProblem<T>::check_backward(TensorView<const T, 4> d_q, TensorView<const T, 4> d_k,
                                                TensorView<const T, 4> d_v) const {
  const double bound = attention_backward_bound(sizes_.shape(), largest_score_, unit_roundoff<T>());
  std::string wrong = check("d_v", "key", d_v, &Head::d_v, bound);  // the one that depends on the least
  if (wrong.empty()) wrong = check("d_q", "query", d_q, &Head::d_q, bound);
  if (wrong.empty()) wrong = check("d_k", "key", d_k, &Head::d_k, bound);
  return wrong;
}

template <class T>
std::string AttentionProblem<T>::check(const std::string& name, const std::string& rows, TensorView<const T, 4> got,
                                       Expected Head::*want, double bound) const {
  const Index heads = sizes_.batch * sizes_.heads, first_checked = heads - static_cast<Index>(heads_.size());
  for (Index head = 0; head < heads; ++head) {
    const Index b = head / sizes_.heads, h = head % sizes_.heads;
    const std::string where =
        format("%s of batch %lld, head %lld: ", name.c_str(), static_cast<long long>(b), static_cast<long long>(h));
    const Tensor<T, 4> elements = packed(rows_of(got, b, h, 0, sizes_.seq_len));
    if (head < first_checked) {
      for (Index i = 0; i < elements.size(); ++i) {
        const T value = elements.data()[i];
        if (std::isfinite(value)) continue;
        return where +
               format("%s %lld, column %lld is ", rows.c_str(), static_cast<long long>(i / sizes_.head_dim),
                      static_cast<long long>(i % sizes_.head_dim)) +
               (is_poison(value) ? "nothing (never written)"
                                 : format("%g, expected a finite number", static_cast<double>(value)));
      }
      continue;
    }

    const Expected& expected = heads_[static_cast<std::size_t>(head - first_checked)].*want;
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

}  // namespace flash
