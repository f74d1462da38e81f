#include "benchmarking/attention_inputs.hpp"

#include <algorithm>
#include <cmath>
#include <future>
#include <thread>

#include "common/heads.hpp"
#include "common/inputs.hpp"

namespace flash {
namespace {

using std::to_string;

// Rows [first, first + rows).
template <class T>
TensorView<const T, 4> rows_of(TensorView<const T, 4> x, Index first, Index rows) {
  return {x.data() + first * x.stride(2), {1, 1, rows, x.extent(3)}, x.strides()};
}

// to[first + row, :] += from[row, :]
void add(WithMagnitude& to, Index first, const WithMagnitude& from) {
  for (const auto part : {&WithMagnitude::value, &WithMagnitude::magnitude}) {
    double* const start = &(to.*part)(0, 0, first, 0);
    for (Index i = 0; i < (from.*part).size(); ++i) start[i] += (from.*part).data()[i];
  }
}

// The float64 oracle of one head, on all processors and without a large matrix: common/oracle.hpp
// would keep all of P (2 GiB for 16384 keys) and take minutes. It gets 64 queries at a time; what
// they add to d_k and d_v is summed up here.
template <class T>
HeadOracle head_oracle(TensorView<const T, 4> q, TensorView<const T, 4> k, TensorView<const T, 4> v,
                       TensorView<const T, 4> d_out, bool causal, bool backward) {
  constexpr Index kStep = 64;
  const AttentionShape shape = attention_shape(q.shape(), k.shape());
  const Index all_queries = shape.queries, all_keys = shape.keys, head_dim = shape.head_dim;
  const AttentionOptions options{.causal = causal};
  const auto zeros = [&](Index rows, Index columns) {
    const Tensor<double, 4> zero({1, 1, rows, columns});
    return WithMagnitude{zero, zero};
  };
  HeadOracle head{zeros(all_queries, head_dim), zeros(all_queries, head_dim),
                  zeros(all_keys, head_dim), zeros(all_keys, head_dim), zeros(all_queries, 1)};

  const Index workers =
      std::clamp<Index>(std::thread::hardware_concurrency(), 1, (all_queries + kStep - 1) / kStep);
  // Fills its rows of head.out, head.lse and head.d_q. The rest is its share.
  const auto work = [&](Index worker) {
    HeadOracle share{{}, {}, zeros(all_keys, head_dim), zeros(all_keys, head_dim), {}};
    for (Index i = worker * kStep; i < all_queries; i += workers * kStep) {
      const Index queries = std::min(kStep, all_queries - i);
      const Index keys = shape.visible_keys(i + queries - 1, causal);
      const auto q_rows = rows_of(q, i, queries);
      const auto k_seen = rows_of(k, 0, keys), v_seen = rows_of(v, 0, keys);
      const auto out = attention_oracle(q_rows, k_seen, v_seen, options, Magnitudes::kWanted, i);
      add(head.out, i, out.out);
      std::copy_n(out.lse.data(), queries, &head.lse.value(0, 0, i, 0));
      share.largest_score = std::max(share.largest_score, out.largest_score);
      if (!backward) continue;
      const auto d =
          attention_backward_oracle(q_rows, k_seen, v_seen, rows_of(d_out, i, queries), options, i);
      add(head.d_q, i, d.d_q);
      add(share.d_k, 0, d.d_k);
      add(share.d_v, 0, d.d_v);
    }
    return share;
  };
  std::vector<std::future<HeadOracle>> shares;
  for (Index worker = 0; worker < workers; ++worker)
    shares.push_back(std::async(std::launch::async, work, worker));
  for (auto& each : shares) {
    const HeadOracle share = each.get();
    add(head.d_k, 0, share.d_k);
    add(head.d_v, 0, share.d_v);
    head.largest_score = std::max(head.largest_score, share.largest_score);
  }
  return head;
}

}  // namespace

template <class T>
AttentionInputs<T>::AttentionInputs(const AttentionProblem& wanted, std::uint64_t seed,
                                    Index query_scale, bool with_backward)
    : problem(wanted), backward_(with_backward) {
  // A thread each: for 16384 tokens of 2048 columns they take seconds.
  const auto start = [&](const Shape<4>& shape, std::uint64_t number, Index deviation = 1) {
    return std::async(std::launch::async, normal<T>, shape, 4 * seed + number,
                      static_cast<double>(deviation));
  };
  const Shape<4> of_queries = problem.shape.of_queries(), of_keys = problem.shape.of_keys();
  auto to_q = start(of_queries, 0, query_scale), to_k = start(of_keys, 1), to_v = start(of_keys, 2);
  if (backward_) d_out = normal<T>(of_queries, 4 * seed + 3);
  q = to_q.get();
  k = to_k.get();
  v = to_v.get();
}

template <class T>
void AttentionInputs<T>::prepare_check(bool of_all_heads) {
  // One pair of a query and a key takes the oracle about 9 ns for each column of head_dim: these
  // take 0.6 s where it is 64.
  constexpr double kPairs = 1 << 20;
  const AttentionShape& shape = problem.shape;
  const Index heads = shape.batch * shape.heads;
  const Index few = static_cast<Index>(kPairs / visible_pairs(shape, problem.options.causal));
  heads_.clear();
  for (Index n = of_all_heads ? 0 : heads - std::clamp(few, Index{1}, heads); n < heads; ++n) {
    const auto head = [&](const Tensor<T, 4>& x) {
      return x.size() == 0 ? x.view() : view_of_head(x.view(), n / shape.heads, n % shape.heads);
    };
    heads_.push_back(
        head_oracle<T>(head(q), head(k), head(v), head(d_out), problem.options.causal, backward_));
  }
}

template <class T>
Verdict AttentionInputs<T>::check_forward(TensorView<const T, 4> out) const {
  return check("out", "query", out, &HeadOracle::out, attention_output_bound<T>);
}

template <class T>
Verdict AttentionInputs<T>::check_backward(TensorView<const T, 4> d_q, TensorView<const T, 4> d_k,
                                           TensorView<const T, 4> d_v) const {
  const auto bound = attention_gradient_bound<T>;
  Verdict verdict = check("d_v", "key", d_v, &HeadOracle::d_v, bound);  // it depends on the least
  verdict.add(check("d_q", "query", d_q, &HeadOracle::d_q, bound));
  verdict.add(check("d_k", "key", d_k, &HeadOracle::d_k, bound));
  return verdict;
}

template <class T>
Verdict AttentionInputs<T>::check_lse(TensorView<const LseType<T>, 3> lse) const {
  const TensorView<const LseType<T>, 4> column(lse.data(),
                                               {lse.extent(0), lse.extent(1), lse.extent(2), 1},
                                               {lse.stride(0), lse.stride(1), lse.stride(2), 1});
  return check("lse", "query", column, &HeadOracle::lse,
               [](const AttentionShape& shape, double largest_score) {
                 return attention_bound(shape, largest_score, unit_roundoff<LseType<T>>());
               });
}

template <class T>
template <class U>
Verdict AttentionInputs<T>::check(const std::string& name, const std::string& rows,
                                  TensorView<const U, 4> got, WithMagnitude HeadOracle::*want,
                                  double (*bound_of)(const AttentionShape&, double)) const {
  Verdict verdict;
  const AttentionShape& shape = problem.shape;
  const Index heads = shape.batch * shape.heads, columns = got.extent(3);
  const Index first_checked = heads - static_cast<Index>(heads_.size());
  for (Index head = 0; head < heads; ++head) {
    const Index b = head / shape.heads, h = head % shape.heads;
    const std::string where = name + " of batch " + to_string(b) + ", head " + to_string(h) + ": ";
    const TensorView<const U, 4> rows_of_head = view_of_head(got, b, h);
    if (head < first_checked) {  // without a copy: 4 tensors of 2^25 numbers are read for each pass
      for (Index i = 0; i < rows_of_head.extent(2); ++i)
        for (Index c = 0; c < columns; ++c) {
          const U x = rows_of_head(0, 0, i, c);
          if (std::isfinite(static_cast<double>(x))) continue;
          verdict.wrong =
              where + rows + " " + to_string(i) + ", column " + to_string(c) + " is " +
              (is_poison(x) ? "unchanged (never written)"
                            : format("%g, expected a finite number", static_cast<double>(x)));
          return verdict;
        }
      continue;
    }

    const HeadOracle& oracle = heads_[static_cast<std::size_t>(head - first_checked)];
    const double bound = bound_of(shape, oracle.largest_score);
    WithMagnitude expected = oracle.*want;
    double* const magnitude = expected.magnitude.data();
    for (Index i = 0; i < expected.magnitude.size(); ++i) {
      // The error of lse is absolute, but for the rounding of what is stored.
      if (want == &HeadOracle::lse)
        magnitude[i] = 1 + unit_roundoff<U>() * std::fabs(expected.value.data()[i]) / bound;
      // Half loses up to 2^-25 of a number below 2^-14, and float one below 2^-126: of the result,
      // and of the weights in its sum.
      const double lost = std::is_same_v<U, Half> ? 0x1p-25 : 0x1p-126;
      magnitude[i] += lost * (1 + std::sqrt(static_cast<double>(shape.keys))) / bound;
    }
    verdict.add(verdict_of(packed(rows_of_head).data(), expected.value, expected.magnitude, bound,
                           rows, where));
    if (!verdict.wrong.empty()) return verdict;
  }
  return verdict;
}

template struct AttentionInputs<float>;
template struct AttentionInputs<double>;
template struct AttentionInputs<Half>;
template struct AttentionInputs<BFloat16>;

}  // namespace flash
