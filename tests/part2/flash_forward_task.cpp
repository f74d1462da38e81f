// Task part2.flash_forward: out and lse of every problem, what lies around them, the inputs, and
// the memory.
#include <algorithm>

#include "common/memory_meter.hpp"
#include "harness/cases/far_apart.hpp"
#include "harness/judge/watched_memory.hpp"
#include "part2/attention_cases.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash::harness {
namespace {

template <class T>
Verdict judge(const AttentionCase& problem, std::uint64_t seed) {
  using Call = ForwardCall<T, InPlace>;
  return Call::judge(problem, seed, [](Call& call) {
    const auto [queries, keys] = call.problem.blocks;
    flash_attention_forward(call.tensors.pass(), {queries, keys});
  });
}

// With a causal mask and many more keys than queries, the keys behind the last block that some
// query sees are not even read.
Verdict unseen_keys_are_never_read(std::uint64_t seed) {
  const AttentionShape shape{.batch = 1, .heads = 1, .queries = 40, .keys = 2048, .head_dim = 64};
  constexpr Index kBlock = 16,
                  kSeen =
                      48;  // the keys up to the end of the last block with one that a query sees
  const AttentionOptions options{.causal = true};
  const auto q = normal<float>(shape.of_queries(), seed);
  const auto seen = normal<float>({1, 1, kSeen, shape.head_dim}, seed + 1);
  WatchedRows k_rows(shape.keys, shape.head_dim);
  std::copy_n(seen.data(), seen.size(), k_rows.data());
  const TensorView<const float, 4> k(k_rows.data(), shape.of_keys());
  const auto v = normal<float>(shape.of_keys(), seed + 2);
  const auto oracle = attention_oracle(q.view(), k, v.view(), options);
  Tensor<float, 4> out(shape.of_queries());
  Tensor<float, 3> lse(shape.of_rows());

  k_rows.watch_from(kSeen);
  try {
    flash_attention_forward<float>({q.view(), k, v.view(), out.view(), lse.view(), options},
                                   {kBlock, kBlock});
  } catch (const KernelError&) {  // of the memory that is not there
    const auto key = k_rows.touched();
    if (!key) throw;
    return {false, "It reads key " + std::to_string(*key) +
                       ", which no query sees: the last is query " +
                       std::to_string(shape.queries - 1) +
                       ". Blocks of keys behind the last one that a block of queries sees have to "
                       "be skipped, not masked."};
  }
  const double bound = attention_output_bound<float>(shape, oracle.largest_score);
  const std::string wrong =
      wrong_in<float>(std::as_const(out).view(), oracle.out, bound, "query", kBlock);
  return verdict_on(wrong);
}

Verdict memory_grows_no_faster_than_the_sequence(std::uint64_t seed) {
  const auto extra_bytes = [&](Index heads, Index queries, Index keys, Index head_dim) {
    ForwardCall<float, InPlace> call({.shape = {1, heads, queries, keys, head_dim}}, seed);
    const std::size_t bytes =
        host_memory::extra_bytes_of([&] { flash_attention_forward(call.tensors.pass()); });
    return std::pair{bytes, call.verdict()};  // a call that does nothing holds nothing
  };
  const auto [few, first] = extra_bytes(2, 256, 256, 32);
  const auto [many, second] = extra_bytes(2, 1024, 1024, 32);
  // A row that is on the stack shows where it is longer than what the kernel's meter forgives.
  const auto [long_rows, third] = extra_bytes(1, 1, 100000, 4);
  for (const Verdict& each : {first, second, third})
    if (!each.pass) return each;
  const Verdict growth = grows_no_faster(256, few, many, 5 * few + 65536, "All of S would be");
  if (!growth.pass) return growth;
  // A few blocks, each of them twice; and what a call of the library may keep.
  const auto [queries, keys] = AttentionBlocks();
  const std::size_t most =
      4 * sizeof(float) * (2 * (queries + keys) * 32 + queries * keys + 2 * queries);
  if (many > few + 1024)
    return {false,
            growth.text +
                ": the memory has to stay the same, however long the sequence is. "
                "Something has an element for each query or key: a row of S, or a copy of K."};
  if (many > most)
    return {false, growth.text + "; a few blocks are " + std::to_string(most) + " at most."};
  if (long_rows > few + 1024)
    return {false, "It had " + std::to_string(long_rows) +
                       " extra bytes in use at once for one query and 100000 keys: something has "
                       "an element for each key, such as a row of S."};
  return growth;
}

}  // namespace

TaskUnderTest flash_forward_task() {
  TaskUnderTest task{.id = "part2.flash_forward", .cases = {}};
  for (const AttentionCase& problem : part2::attention_cases())
    task.add(problem.name, problem.requirement(), [problem](auto seed) {
      return part2::with_type(problem.type,
                              [&](auto zero) { return judge<decltype(zero)>(problem, seed); });
    });
  task.add(kFarApartName, "strides", Needs::kSparseMemory, [](auto seed) {
    return forward_far_apart(
        seed, [](const AttentionForward<float>& pass) { flash_attention_forward(pass); });
  });
  task.add(kOtherNumbersName, "whole blocks", [](auto seed) {
    return with_other_numbers(seed, [](auto of) {
      return judge<float>({.shape = {1, 2, 16, 16, 8}, .blocks = {16, 16}}, of);
    });
  });
  task.add(kBehindName, "ragged ends", [](auto seed) {
    return nothing_is_read_behind<ForwardCall<float, InPlace>>(
        {.shape = {1, 1, 17, 19, 5}, .blocks = {16, 16}}, seed,
        [](auto& tensors) { return std::tie(tensors.q, tensors.k, tensors.v); },
        [](auto& call) {
          flash_attention_forward(call.tensors.pass(), {16, 16});
        });
  });
  task.add("causal: unseen keys are never read", "memory", unseen_keys_are_never_read);
  task.add("memory grows no faster than the sequence", "memory",
           memory_grows_no_faster_than_the_sequence);
  return task;
}

}  // namespace flash::harness
