// Task part1.attention_1d: the cases of the warm-up puzzle.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/compare.hpp"
#include "common/inputs.hpp"
#include "common/oracle.hpp"
#include "harness/device_copy.hpp"
#include "harness/graded_case.hpp"
#include "part1_softmax_matmul/attention_1d.hpp"

namespace flash::harness {
namespace {

struct Attention1dCase {
  std::string name;
  Index n_queries = 200, n_keys = 200;
  int queries_per_block = 32, keys_per_tile = 32;
  double scale = 1;     // of the queries
  Pattern v = Pattern::kNormal;
};

std::vector<Attention1dCase> attention_1d_cases() {
  return {
      {.name = "200 queries and 200 keys in blocks of 32"},
      {.name = "all 200 queries in one block", .queries_per_block = 200},
      {.name = "200 queries and 77 keys", .n_keys = 77},
      {.name = "33 queries and 200 keys", .n_queries = 33},
      {.name = "tiles of 48 keys", .keys_per_tile = 48},
      {.name = "tiles larger than the block: 100 keys for 32 threads", .keys_per_tile = 100},
      {.name = "one query", .n_queries = 1},
      {.name = "one key", .n_keys = 1},
      {.name = "scores in the hundreds", .scale = 100},
      {.name = "values that show which keys were counted", .n_keys = 70, .v = Pattern::kRising},
      {.name = "many blocks: 5000 queries and 1000 keys", .n_queries = 5000, .n_keys = 1000},
  };
}

// The three dimensions that the oracle and PaddedTensor speak of.
Shape<3> row_of(Index length) { return {1, 1, length}; }

TensorView<float, 1> as_vector(TensorView<float, 3> row) { return {row.data(), {row.extent(2)}}; }

Verdict judge(const Attention1dCase& problem, std::uint64_t seed) {
  Tensor<float, 3> q = make_input<3>(row_of(problem.n_queries), Pattern::kNormal, 3 * seed);
  for (Index i = 0; i < q.size(); ++i) q.data()[i] *= static_cast<float>(problem.scale);
  const Tensor<float, 3> k = make_input<3>(row_of(problem.n_keys), Pattern::kNormal, 3 * seed + 1);
  const Tensor<float, 3> v = make_input<3>(row_of(problem.n_keys), problem.v, 3 * seed + 2);

  const PaddedTensor q_before(q, Layout::kRowMajor), k_before(k, Layout::kRowMajor), v_before(v, Layout::kRowMajor);
  PaddedTensor padded_q = q_before, padded_k = k_before, padded_v = v_before;
  PaddedTensor padded_z(row_of(problem.n_queries), Layout::kRowMajor);
  {
    DeviceCopy device_q(padded_q), device_k(padded_k), device_v(padded_v), device_z(padded_z);
    attention_1d_cuda(as_vector(device_q.view()), as_vector(device_k.view()), as_vector(device_v.view()),
                      as_vector(device_z.view()), problem.queries_per_block, problem.keys_per_tile);
    device::synchronize();
    for (DeviceCopy<float, 3>* copy : {&device_q, &device_k, &device_v, &device_z}) copy->copy_back();
  }
  if (const auto where = padded_z.written_outside()) return {false, "It writes outside of `z`: " + *where + "."};
  if (!padded_q.same_bits(q_before)) return {false, "It changes `q`. Inputs must stay as they are."};
  if (!padded_k.same_bits(k_before)) return {false, "It changes `k`. Inputs must stay as they are."};
  if (!padded_v.same_bits(v_before)) return {false, "It changes `v`. Inputs must stay as they are."};

  // The scores in float64, and V as a column: then this is softmax(X) V with d3 = 1.
  Tensor<double, 3> scores({1, problem.n_queries, problem.n_keys}), column({1, problem.n_keys, 1});
  double largest = 0;
  for (Index j = 0; j < problem.n_keys; ++j) column(0, j, 0) = v(0, 0, j);
  for (Index i = 0; i < problem.n_queries; ++i)
    for (Index j = 0; j < problem.n_keys; ++j) {
      scores(0, i, j) = static_cast<double>(q(0, 0, i)) * k(0, 0, j);
      largest = std::max(largest, std::fabs(scores(0, i, j)));
    }
  const TensorView<const double, 3> x = scores.view(), values = column.view();
  const Tensor<double, 3> want = softmax_matmul_oracle(x, values), magnitude = softmax_matmul_magnitude(x, values);

  // As in task 1.A, and twice as much for the score itself, whose two products (with the key, with log2 e) are rounded too.
  const double bound = 0x1p-24 * (8 + 4 * largest + 4 * std::sqrt(static_cast<double>(problem.n_keys)));
  CompareOptions options;
  options.max_scaled = bound;
  options.max_frobenius = bound * std::sqrt(static_cast<double>(problem.n_keys));
  options.axes = {"batch", "query", "column"};
  options.blocks = {0, problem.queries_per_block, 0};
  options.magnitude = magnitude.data();
  const TensorView<const float, 3> got(padded_z.view().data(), {1, problem.n_queries, 1});
  const Comparison comparison = compare<3>(got, want, options);
  return {comparison.pass, comparison.text};
}

}  // namespace

TaskUnderTest task_under_test() {
  TaskUnderTest task{.id = "part1.attention_1d", .needs_gpu = true, .has_gpu = [] { return device::count() > 0; }, .cases = {}};
  for (const Attention1dCase& problem : attention_1d_cases())
    task.cases.push_back({problem.name, 1, [problem](std::uint64_t seed) { return judge(problem, seed); }});
  return task;
}

}  // namespace flash::harness
