// Task part2.flash_backward: delta, and the gradients of every problem for a random upstream
// gradient, from the oracle's out and lse.
#include <algorithm>

#include "common/memory_meter.hpp"
#include "harness/cases/far_apart.hpp"
#include "harness/cases/own_passes.hpp"
#include "harness/judge/watched_memory.hpp"
#include "part2/attention_cases.hpp"
#include "part2_flash_cpu/flash_attention.hpp"

namespace flash::harness {
namespace {

template <class T>
Verdict judge(const AttentionCase& problem, std::uint64_t seed) {
  using Call = BackwardCall<T, InPlace>;
  return Call::judge(problem, seed, Wanted::kAll, [](Call& call) {
    flash_attention_backward(call.tensors.pass(), call.problem.blocks.keys);
  });
}

// delta alone, from an out that no attention gave: what else is wrong does not matter.
Verdict delta_is_the_row_sum(std::uint64_t seed) {
  const AttentionShape shape{.batch = 2, .heads = 3, .queries = 37, .keys = 1, .head_dim = 24};
  const auto out = normal<float>(shape.of_queries(), seed),
             d_out = normal<float>(shape.of_queries(), seed + 100);
  for (const Layout layout : {Layout::kRowMajor, Layout::kSpread}) {
    PassTensor<float, 4> padded_out("out", out, layout_of(layout, 0)),
        padded_d_out("d_out", d_out, layout_of(layout, 1));
    PassTensor<float, 3> delta("delta", shape.of_rows(), layout_of(layout, 2));
    attention_delta<float>(padded_out.in_call(), padded_d_out.in_call(), delta.in_call());
    for (auto* const tensor : {&padded_out, &padded_d_out}) tensor->copy_back();
    delta.copy_back();
    if (const std::string damage = damage_of(delta, padded_out, padded_d_out); !damage.empty())
      return {false, damage};
    const std::string wrong = wrong_delta<float>(delta.view(), out.view(), d_out.view());
    if (!wrong.empty()) return {false, wrong};
  }
  return {true, ""};
}

Verdict memory_grows_no_faster_than_the_sequence(std::uint64_t seed) {
  const auto extra_bytes = [&](Index sequence) {
    BackwardCall<float, InPlace> call({.shape = {1, 2, sequence, sequence, 32}}, seed);
    const std::size_t bytes =
        host_memory::extra_bytes_of([&] { flash_attention_backward(call.tensors.pass()); });
    return std::pair{bytes, call.verdict()};
  };
  const auto [few, first] = extra_bytes(256);
  const auto [many, second] = extra_bytes(1024);
  if (!first.pass || !second.pass) return first.pass ? second : first;
  // A call may take more than it needs for the short sequence, too: a quarter of P, 8 bits of each
  // weight, is too much anyway.
  const std::size_t most = std::min<std::size_t>(5 * few + 65536, 1024 * 1024);
  return grows_no_faster(256, few, many, most, "P of one head is");
}

}  // namespace

TaskUnderTest flash_backward_task() {
  TaskUnderTest task{.id = "part2.flash_backward"};
  task.add("delta", "delta", delta_is_the_row_sum);
  std::vector<AttentionCase> problems = part2::attention_cases();
  problems.push_back({.name = "rows whose lse is -inf have no weights",
                      .shape = {2, 2, 40, 50, 16},
                      .blocks = {16, 16},
                      .without_weights = true});
  problems.push_back({.name = "causal: 1024 queries and keys",
                      .shape = {1, 1, 1024, 1024, 16},
                      .causal = true,
                      .blocks = {16, 16}});
  for (const AttentionCase& problem : problems) {
    if (!problem.has_gradients()) continue;
    task.add(problem.name, problem.requirement(), [problem](auto seed) {
      return part2::with_type(problem.type,
                              [&](auto zero) { return judge<decltype(zero)>(problem, seed); });
    });
  }
  task.add(kOtherNumbersName, "whole blocks", [](auto seed) {
    return with_other_numbers(seed, [](auto of) {
      return judge<float>({.shape = {1, 2, 16, 16, 8}, .blocks = {16, 16}}, of);
    });
  });
  task.add(kBehindName, "ragged ends", [](auto seed) {
    return nothing_is_read_behind<BackwardCall<float, InPlace>>(
        {.shape = {1, 1, 17, 19, 5}, .blocks = {16, 16}}, seed,
        [](auto& t) { return std::tie(t.q, t.k, t.v, t.out, t.d_out, t.lse); },
        [](auto& call) { flash_attention_backward(call.tensors.pass(), 16); });
  });
  task.add(kFarApartName, "strides", Needs::kSparseMemory, [](auto seed) {
    return backward_far_apart(
        seed, [](const AttentionBackward<float>& pass) { flash_attention_backward(pass); });
  });
  task.add("memory grows no faster than the sequence", "memory",
           memory_grows_no_faster_than_the_sequence);
  add_cases_of_own_passes<InPlace>(
      task, {.forward_task = "2.A",
             .forward = [](const auto& pass) { own_forward(pass); },
             .backward = [](const auto& pass) { flash_attention_backward(pass); },
             .bytes_in_use = host_memory::in_use});
  return task;
}

}  // namespace flash::harness
