// Task part1.attention_1d: the cases of the warm-up puzzle.
#include <cmath>

#include "common/cuda/device_tensor.hpp"
#include "common/oracle.hpp"
#include "part1/softmax_matmul_cases.hpp"
#include "part1_softmax_matmul/attention_1d.hpp"

namespace flash::part1 {
namespace {

struct Attention1dCase {
  std::string name;
  Index n_queries = 200, n_keys = 200;
  int queries_per_block = 32, keys_per_tile = 32;
  float scale = 1;  // of the queries
  Pattern v = kNormal;
  bool opposite = false;  // queries below 0, keys from 10 on
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
      {.name = "scores below -1000", .scale = 100, .opposite = true},
      {.name = "values that show which keys were counted", .n_keys = 70, .v = kRising},
      {.name = "many blocks: 5000 queries and 1000 keys", .n_queries = 5000, .n_keys = 1000},
  };
}

// A vector in the three dimensions that the oracle and PaddedTensor speak of.
Tensor<float, 3> row_of(Index length, Pattern pattern, std::uint64_t seed) {
  return make_input<3>({1, 1, length}, pattern, seed);
}

Verdict judge_1d(const Attention1dCase& problem, std::uint64_t seed) {
  const auto& [name, n_queries, n_keys, queries_per_block, keys_per_tile, scale, pattern,
               opposite] = problem;
  Tensor<float, 3> q = row_of(n_queries, kNormal, 3 * seed);
  for (Index i = 0; i < n_queries; ++i) q(0, 0, i) *= scale;
  Tensor<float, 3> k = row_of(n_keys, kNormal, 3 * seed + 1);
  for (Index i = 0; opposite && i < n_queries; ++i) q(0, 0, i) = -std::fabs(q(0, 0, i)) - scale;
  for (Index j = 0; opposite && j < n_keys; ++j) k(0, 0, j) = std::fabs(k(0, 0, j)) + 10;
  const Tensor<float, 3> v = row_of(n_keys, pattern, 3 * seed + 2);
  using OnDevice = PassTensor<float, 3, harness::DeviceCopy>;
  OnDevice device_q("q", q, kRowMajor), device_k("k", k, kRowMajor), device_v("v", v, kRowMajor),
      z("z", q.shape(), kRowMajor);
  const auto vector = [](const OnDevice& tensor) {
    return TensorView<float, 1>(tensor.in_call().data(), {tensor.in_call().extent(2)});
  };
  attention_1d_cuda(vector(device_q), vector(device_k), vector(device_v), vector(z),
                    queries_per_block, keys_per_tile);
  device::synchronize();
  for (auto* const tensor : {&device_q, &device_k, &device_v, &z}) tensor->copy_back();
  if (const std::string damage = damage_of(z, device_q, device_k, device_v); !damage.empty())
    return {false, damage};

  // The scores in float64, and V as a column: then this is softmax(X) V with d3 = 1.
  Tensor<double, 3> scores({1, n_queries, n_keys}), column({1, n_keys, 1});
  double largest = 0;
  for (Index j = 0; j < n_keys; ++j) column(0, j, 0) = v(0, 0, j);
  for (Index i = 0; i < n_queries; ++i)
    for (Index j = 0; j < n_keys; ++j) {
      scores(0, i, j) = static_cast<double>(q(0, 0, i)) * k(0, 0, j);
      largest = std::max(largest, std::fabs(scores(0, i, j)));
    }
  const TensorView<const double, 3> x = scores.view(), values = column.view();
  // As in task 1.A, and twice as much for the score itself, whose two products (with the key, with
  // log2 e) are rounded too.
  const double bound = 0x1p-24 * (8 + 4 * largest + 4 * std::sqrt(static_cast<double>(n_keys)));
  return judge_sums({z.view().data(), {1, n_queries, 1}}, softmax_matmul_oracle(x, values),
                    softmax_matmul_magnitude(x, values), bound, n_keys, "query", queries_per_block);
}

}  // namespace
}  // namespace flash::part1

flash::harness::TaskUnderTest flash::harness::task_under_test() {
  TaskUnderTest task = gpu_task("part1.attention_1d");
  for (const auto& problem : part1::attention_1d_cases())
    task.cases.push_back(
        {problem.name, "puzzle", [problem](auto seed) { return part1::judge_1d(problem, seed); }});
  if (device::is_emulated() && in_process())
    task.cases.push_back({"in the order of its stream", "puzzle", [](auto) {
                            const Tensor<float, 1> zeros({90});
                            const DeviceTensor<float, 1> q(zeros), k(zeros), v(zeros), z({90});
                            return enqueues_on_its_stream([&](Stream stream) {
                              attention_1d_cuda(q.view(), k.view(), v.view(), z.view(), 32, 32,
                                                stream);
                            });
                          }});
  return task;
}
