// Implements head_oracle.hpp.
#include "benchmarking/head_oracle.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "common/half.hpp"
#include "common/oracle.hpp"

namespace flash {
namespace {

// Rows [first, first + rows).
template <class T>
TensorView<const T, 4> rows_of(TensorView<const T, 4> x, Index first, Index rows) {
  return {x.data() + first * x.stride(2), {1, 1, rows, x.extent(3)}, x.strides()};
}

HeadOracle::Result zeros(Index rows, Index columns) {
  const Shape<2> shape{rows, columns};
  return {Tensor<double, 2>(shape), Tensor<double, 2>(shape)};
}

// to[first + row, :] += from[row, :]
void add(Tensor<double, 2>& to, Index first, const Tensor<double, 4>& from) {
  double* const start = to.data() + first * to.extent(1);
  for (Index i = 0; i < from.size(); ++i) start[i] += from.data()[i];
}
void add(HeadOracle::Result& to, Index first, const WithMagnitude& from) {
  add(to.value, first, from.value);
  add(to.magnitude, first, from.magnitude);
}
void add(HeadOracle::Result& to, const HeadOracle::Result& from) {
  for (Index i = 0; i < to.value.size(); ++i) {
    to.value.data()[i] += from.value.data()[i];
    to.magnitude.data()[i] += from.magnitude.data()[i];
  }
}

}  // namespace

// The oracle gets a few queries at a time; what each adds to d_k and d_v is summed up here. With the causal mask that is one
// query and the keys that it sees: more queries would need a mask that does not begin at query 0. That is several times the
// work of all queries at once, which a few threads are therefore spared where the matrices are small.
template <class T>
HeadOracle head_oracle(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                       TensorView<const T, 4> d_out, bool causal, HeadPasses passes) {
  constexpr unsigned kFewThreads = 4;
  constexpr Index kSmallMatrix = Index{1} << 24;  // elements, 128 MiB
  const unsigned workers = std::max(std::thread::hardware_concurrency(), 1u);
  const Index all_queries = q.extent(2), all_keys = k.extent(2), head_dim = q.extent(3);
  const bool at_once = causal && workers <= kFewThreads && all_queries * all_keys <= kSmallMatrix;
  const Index step = at_once ? all_queries : causal ? 1 : 64;
  const AttentionOptions options{.causal = at_once};
  const bool forward = passes != HeadPasses::kBackward, backward = passes != HeadPasses::kForward;
  HeadOracle head{zeros(all_queries, head_dim), zeros(all_queries, head_dim), zeros(all_keys, head_dim),
                  zeros(all_keys, head_dim), Tensor<double, 1>({all_queries})};

  std::atomic<Index> next{0};
  std::mutex mutex;  // of everything below, and of head.d_k, head.d_v and head.largest_score
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      HeadOracle::Result d_k = zeros(all_keys, head_dim), d_v = zeros(all_keys, head_dim);
      double largest_score = 0;
      for (Index i = next.fetch_add(step); i < all_queries; i = next.fetch_add(step)) {
        const Index queries = std::min(step, all_queries - i), keys = causal && !at_once ? std::min(i + 1, all_keys) : all_keys;
        const auto q_rows = rows_of(q, i, queries), k_seen = rows_of(k, 0, keys), v_seen = rows_of(v, 0, keys);
        if (forward) {
          const AttentionOracle result = attention_oracle(q_rows, k_seen, v_seen, options);
          add(head.out, i, result.out);
          std::copy_n(result.lse.data(), queries, head.lse.data() + i);
          largest_score = std::max(largest_score, result.largest_score);
        }
        if (backward) {
          const auto result = attention_backward_oracle(q_rows, k_seen, v_seen, rows_of(d_out, i, queries), options);
          add(head.d_q, i, result.d_q);
          add(d_k, 0, result.d_k);
          add(d_v, 0, result.d_v);
        }
      }
      const std::lock_guard lock(mutex);
      add(head.d_k, d_k);
      add(head.d_v, d_v);
      head.largest_score = std::max(head.largest_score, largest_score);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned thread = 1; thread < workers; ++thread) threads.emplace_back(work);
  work();
  threads.clear();  // joins
  if (failure) std::rethrow_exception(failure);
  return head;
}

#define FLASH_INSTANTIATE(T)                                                                                 \
  template HeadOracle head_oracle<T>(TensorView<const T, 4>, TensorView<const T, 4>, TensorView<const T, 4>, \
                                     TensorView<const T, 4>, bool, HeadPasses);
FLASH_INSTANTIATE(float)
FLASH_INSTANTIATE(double)
FLASH_INSTANTIATE(Half)
FLASH_INSTANTIATE(BFloat16)
#undef FLASH_INSTANTIATE

}  // namespace flash
