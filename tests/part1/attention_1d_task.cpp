// Task part1.attention_1d: the cases of the warm-up puzzle.
#include <algorithm>
#include <cmath>
#include <utility>

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
  Index shift = 0;        // of the first elements behind an aligned address
};

std::vector<Attention1dCase> attention_1d_cases() {
  return {
      {.name = "200 queries and 200 keys in blocks of 32"},
      {.name = "all 200 queries in one block", .queries_per_block = 200},
      {.name = "200 queries and 77 keys", .n_keys = 77},
      {.name = "33 queries and 200 keys", .n_queries = 33},
      {.name = "tiles of 48 keys", .keys_per_tile = 48},
      {.name = "tiles larger than the block: 100 keys for 32 threads", .keys_per_tile = 100},
      {.name = "blocks of 8 queries",
       .n_queries = 50,
       .n_keys = 40,
       .queries_per_block = 8,
       .keys_per_tile = 16},
      {.name = "33000 keys",
       .n_queries = 2,
       .n_keys = 33000,
       .queries_per_block = 2,
       .keys_per_tile = 1000},
      {.name = "66000 queries",
       .n_queries = 66000,
       .n_keys = 2,
       .queries_per_block = 1024,
       .keys_per_tile = 2},
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

using OnDevice = PassTensor<float, 3, harness::DeviceCopy>;

// The inputs and what a call made of them.
struct Call {
  Tensor<float, 3> q, k, v;
  OnDevice device_q, device_k, device_v, z;

  Call(const Tensor<float, 3>& of_q, const Tensor<float, 3>& of_k, const Tensor<float, 3>& of_v,
       const Attention1dCase& problem, double fill = harness::kPoisoned)
      : q(of_q),
        k(of_k),
        v(of_v),
        device_q("q", q, kRowMajor, problem.shift, fill),
        device_k("k", k, kRowMajor, problem.shift, fill),
        device_v("v", v, kRowMajor, problem.shift, fill),
        z("z", q.shape(), kRowMajor, problem.shift, fill) {
    const auto vector = [](const OnDevice& tensor) {
      return TensorView<float, 1>(tensor.in_call().data(), {tensor.in_call().extent(2)});
    };
    attention_1d_cuda(vector(device_q), vector(device_k), vector(device_v), vector(z),
                      problem.queries_per_block, problem.keys_per_tile);
    for (auto* const tensor : {&device_q, &device_k, &device_v, &z}) tensor->copy_back();
  }
};

// As in task 1.A, and twice as much for the score itself, whose two products (with the key, with
// log2 e) are rounded too. The weight of an only key is 1, whatever its score.
double bound_of(const Call& call) {
  double q = 0, k = 0;
  for (Index i = 0; i < call.q.size(); ++i) q = std::fmax(q, std::fabs(call.q.data()[i]));
  for (Index j = 0; j < call.k.size(); ++j) k = std::fmax(k, std::fabs(call.k.data()[j]));
  const double of_scores = call.k.size() == 1 ? 0 : 4 * q * k;
  return 0x1p-24 * (8 + of_scores + 4 * std::sqrt(static_cast<double>(call.k.size())));
}

// A column, in float64.
Tensor<double, 4> column_of(TensorView<const float, 3> x) {
  const Tensor<double, 3> row = harness::in_float64(x);
  Tensor<double, 4> column({1, 1, x.extent(2), 1});
  std::copy_n(row.data(), row.size(), column.data());
  return column;
}

// Attention with one head, head_dim 1 and a scale of 1.
harness::SeenForward seen_of(const Attention1dCase& problem, Call& call, double fill) {
  return {.shape = {1, 1, call.q.size(), call.k.size(), 1},
          .options = {.scale = 1},
          .q = {column_of(std::as_const(call.q).view())},
          .k = {column_of(std::as_const(call.k).view())},
          .v = {column_of(std::as_const(call.v).view())},
          .out = column_of(call.z.view()),
          .precision = harness::precision_of<float>(bound_of(call)),
          .lse_bound = 1,
          .block_queries = problem.queries_per_block,
          .block_keys = problem.keys_per_tile,
          .key_by_key = true,
          .fill = fill};
}

// What the function gives for another problem, with the blocks of this one.
harness::SeenForward run_again_1d(Attention1dCase problem, std::uint64_t seed,
                                  const harness::Probe& probe) {
  if (probe.data == harness::Data::kMinusInfinity)
    throw ArgumentError("the contract has no such numbers");
  AttentionShape shape = probe.shape;
  shape.batch = shape.heads = shape.head_dim = 1;
  const auto inputs = harness::make_inputs<float>(shape, probe.data, seed);
  const auto row = [](const Tensor<float, 4>& column) {
    Tensor<float, 3> x({1, 1, column.size()});
    std::copy_n(column.data(), column.size(), x.data());
    return x;
  };
  if (probe.block > 0)
    problem.queries_per_block = problem.keys_per_tile = static_cast<int>(probe.block);
  Call call(row(inputs.q), row(inputs.k), row(inputs.v), problem, probe.fill);
  return seen_of(problem, call, probe.fill);
}

Verdict judge_1d(const Attention1dCase& problem, std::uint64_t seed) {
  const auto& [name, n_queries, n_keys, queries_per_block, keys_per_tile, scale, pattern, opposite,
               shift] = problem;
  Tensor<float, 3> q = row_of(n_queries, kNormal, 3 * seed);
  for (Index i = 0; i < n_queries; ++i) q(0, 0, i) *= scale;
  Tensor<float, 3> k = row_of(n_keys, kNormal, 3 * seed + 1);
  for (Index i = 0; opposite && i < n_queries; ++i) q(0, 0, i) = -std::fabs(q(0, 0, i)) - scale;
  for (Index j = 0; opposite && j < n_keys; ++j) k(0, 0, j) = std::fabs(k(0, 0, j)) + 10;
  Call call(q, k, row_of(n_keys, pattern, 3 * seed + 2), problem);
  if (const std::string damage = damage_of(call.z, call.device_q, call.device_k, call.device_v);
      !damage.empty())
    return {false, damage};

  // The scores in float64, and V as a column: then this is softmax(X) V with d3 = 1.
  Tensor<double, 3> scores({1, n_queries, n_keys}), column({1, n_keys, 1});
  for (Index j = 0; j < n_keys; ++j) column(0, j, 0) = call.v(0, 0, j);
  for (Index i = 0; i < n_queries; ++i)
    for (Index j = 0; j < n_keys; ++j)
      scores(0, i, j) = static_cast<double>(q(0, 0, i)) * k(0, 0, j);
  const std::string wrong =
      wrong_product<double>({call.z.view().data(), {1, n_queries, 1}}, scores.view(), column.view(),
                            bound_of(call), "query", queries_per_block);
  if (wrong.empty()) return {true, ""};
  return harness::explained<harness::SeenForward>(
      wrong, seen_of(problem, call, harness::kPoisoned),
      [=](const harness::Probe& probe) { return run_again_1d(problem, seed, probe); });
}

// What is wrong if grid and block are swapped, which gives the right result.
std::string swapped_launch(Index n_queries) {
  const DeviceTensor<float, 1> q({n_queries}), k({1}), v({1}), z({n_queries});
  device::reset_host_calls();
  harness::skip_next_kernels();
  attention_1d_cuda(q.view(), k.view(), v.view(), z.view(), static_cast<int>(n_queries), 1);
  const auto calls = device::host_calls();
  const auto blocks = static_cast<std::size_t>(n_queries);
  if (!calls || calls->blocks != blocks || calls->threads != 1) return "";
  return "For one block of " + std::to_string(blocks) + " queries it launches " +
         std::to_string(blocks) + " thread blocks of one thread: grid and block are swapped.";
}

}  // namespace
}  // namespace flash::part1

namespace flash::harness {

TaskUnderTest attention_1d_task() {
  TaskUnderTest task{.id = "part1.attention_1d", .is_cuda = true};
  for (const auto& problem : part1::attention_1d_cases())
    task.add(problem.name, "puzzle", [problem](auto seed) {
      const std::string launch = problem.queries_per_block == problem.n_queries
                                     ? part1::swapped_launch(problem.n_queries)
                                     : "";
      return launch.empty() ? part1::judge_1d(problem, seed) : Verdict{false, launch};
    });
  task.add(kOtherNumbersName, "puzzle", [](auto seed) {
    return with_other_numbers(
        seed, [](auto of) { return part1::judge_1d({.n_queries = 32, .n_keys = 32}, of); });
  });
  // The others pass with a query or a key read behind the end, whose value nothing uses.
  task.add("checks: no race and no stray access", "puzzle", Needs::kChecks, [](auto seed) {
    return part1::judge_1d({.n_queries = 100, .n_keys = 77, .queries_per_block = 64, .shift = 1},
                           seed);
  });
  task.add("in the order of its stream", "puzzle", Needs::kEmulator, [](auto) {
    const Tensor<float, 1> zeros({90});
    const DeviceTensor<float, 1> q(zeros), k(zeros), v(zeros), z({90});
    return enqueues_on_its_stream([&](Stream stream) {
      attention_1d_cuda(q.view(), k.view(), v.view(), z.view(), 32, 32, stream);
    });
  });
  return task;
}

}  // namespace flash::harness
