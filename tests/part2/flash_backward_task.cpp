// Task part2.flash_backward: delta, and the gradients of every problem for a random upstream
// gradient, from the oracle's out and lse.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/memory_meter.hpp"
#include "harness/far_apart.hpp"
#include "harness/gradient_verdicts.hpp"
#include "harness/padded_pass.hpp"
#include "part2/attention_cases.hpp"

namespace flash::harness {
namespace {

using part2::AttentionCase;

enum class Lse { kOfTheForwardPass, kMinusInfinityInEveryThirdRow };

// What the function gives for another problem, with the options and blocks of this one.
template <class T>
SeenBackward run_again(AttentionCase problem, std::uint64_t seed, const Probe& probe) {
  problem.shape = probe.shape;
  problem.data = probe.data;
  if (probe.block > 0) problem.blocks = {probe.block, probe.block};
  const auto inputs = part2::make_inputs<T>(problem, seed);
  const auto forward = inputs.forward(problem.options());
  PaddedBackward<T> tensors(inputs, converted<T>(forward.out.value), converted<T>(forward.lse),
                            make_d_out<T>(probe.shape, probe.data, seed), problem.layout,
                            problem.options(), 0, probe.fill);
  flash_attention_backward(tensors.pass(), problem.blocks.keys);
  tensors.copy_back();
  return tensors.seen(
      attention_backward_bound(probe.shape, forward.largest_score, unit_roundoff<T>()),
      problem.blocks.keys);
}

template <class T>
Verdict judge(const AttentionCase& problem, std::uint64_t seed, Lse rows = Lse::kOfTheForwardPass) {
  const AttentionShape& shape = problem.shape;
  const auto inputs = part2::make_inputs<T>(problem, seed);
  const Tensor<T, 4> upstream = normal<T>(shape.of_queries(), 1000 + seed);
  auto forward = inputs.forward(problem.options());
  // A row without weights gives what it would with a d_out of 0: no share of dK and dV, and a dQ of
  // 0.
  Tensor<T, 4> counted = upstream;
  if (rows == Lse::kMinusInfinityInEveryThirdRow)
    for (Index row = 0; row < forward.lse.size(); row += 3) {
      forward.lse.data()[row] = -std::numeric_limits<double>::infinity();
      std::fill_n(counted.data() + row * shape.head_dim, shape.head_dim, T{0});
    }
  const auto want = inputs.backward(counted, problem.options());

  PaddedBackward<T> tensors(inputs, converted<T>(forward.out.value), converted<T>(forward.lse),
                            upstream, problem.layout, problem.options());
  flash_attention_backward(tensors.pass(), problem.blocks.keys);
  tensors.copy_back();
  if (const std::string damage = tensors.damage(); !damage.empty()) return {false, damage};

  const double bound = attention_backward_bound(shape, forward.largest_score, unit_roundoff<T>());
  const auto wrong = [&](PassTensor<T, 4>& got, const WithMagnitude& expected, const char* what,
                         Index block) {
    return wrong_in<T>(got.view(), expected, bound, what, block, problem.tolerance);
  };
  std::string text = gradients_text(wrong(tensors.d_q, want.d_q, "query", problem.blocks.queries),
                                    wrong(tensors.d_k, want.d_k, "key", problem.blocks.keys),
                                    wrong(tensors.d_v, want.d_v, "key", problem.blocks.keys));
  if (text.empty()) return {true, ""};
  return explained<SeenBackward>(
      text, tensors.seen(bound, problem.blocks.keys),
      [=](const Probe& probe) { return run_again<T>(problem, seed, probe); });
}

// delta alone, from an out that no attention gave: what else is wrong does not matter.
Verdict delta_is_the_row_sum(std::uint64_t seed) {
  const AttentionShape shape{.batch = 2, .heads = 3, .queries = 37, .keys = 1, .head_dim = 24};
  const auto out = normal<float>(shape.of_queries(), seed),
             d_out = normal<float>(shape.of_queries(), seed + 100);
  BasicPaddedTensor<float, 3> delta(shape.of_rows(), Layout::kRowMajor);
  attention_delta<float>(out.view(), d_out.view(), delta.view());
  if (const std::string damage = delta.written_outside("delta"); !damage.empty())
    return {false, damage};
  const std::string wrong = wrong_delta<float>(delta.view(), out.view(), d_out.view());
  return verdict_on(wrong);
}

AttentionInputs<double> gradients(const AttentionInputs<double>& inputs,
                                  const Tensor<double, 4>& d_out, const AttentionOptions& options) {
  const auto oracle = inputs.forward(options, Magnitudes::kLeftOut);
  AttentionInputs<double> d{Tensor<double, 4>(inputs.q.shape()),
                            Tensor<double, 4>(inputs.k.shape()),
                            Tensor<double, 4>(inputs.v.shape())};
  flash_attention_backward<double>({inputs.q.view(), inputs.k.view(), inputs.v.view(),
                                    oracle.out.value.view(), oracle.lse.view(), d_out.view(),
                                    d.q.view(), d.k.view(), d.v.view(), options});
  return d;
}

// The homework's gradient check: each element of the gradients against a central difference of the
// output, step 1e-6.
Verdict gradients_are_differences(std::uint64_t seed, bool causal) {
  const AttentionCase problem{.shape = {1, 1, 32, 32, 16}, .causal = causal, .float64 = true};
  auto inputs = part2::make_inputs<double>(problem, seed);
  const auto d_out = normal<double>(problem.shape.of_queries(), 1000 + seed);
  const auto got = gradients(inputs, d_out, problem.options());
  constexpr double kStep = 1e-6, kAbsolute = 1e-4, kRelative = 1e-3;
  const std::pair<Tensor<double, 4>*, const Tensor<double, 4>*> pairs[] = {
      {&inputs.q, &got.q}, {&inputs.k, &got.k}, {&inputs.v, &got.v}};
  const char* const names[] = {"dQ", "dK", "dV"};
  for (int which = 0; which < 3; ++which)
    for (Index i = 0; i < pairs[which].first->size(); ++i) {
      double& x = pairs[which].first->data()[i];
      const double before = x;
      x = before + kStep;
      const double above = loss(inputs, d_out, problem.options());
      x = before - kStep;
      const double below = loss(inputs, d_out, problem.options());
      x = before;
      const double want = (above - below) / (2 * kStep), value = pairs[which].second->data()[i];
      if (!(std::fabs(value - want) <= kAbsolute + kRelative * std::fabs(want)))
        return {false, std::string(names[which]) + ", row " + std::to_string(i / 16) + ", column " +
                           std::to_string(i % 16) + ": got " + std::to_string(value) +
                           ", but the output changes as if it were " + std::to_string(want) + "."};
    }
  return {true, ""};
}

Verdict gradients_hold_along_a_direction(std::uint64_t seed) {
  const AttentionCase problem{.shape = {1, 1, 2048, 2048, 16}, .causal = true, .float64 = true};
  const auto inputs = part2::make_inputs<double>(problem, seed);
  const auto d_out = normal<double>(problem.shape.of_queries(), 1000 + seed);
  const auto d = gradients(inputs, d_out, problem.options());
  double squares = 0;
  for (const auto* gradient : {&d.q, &d.k, &d.v})
    for (Index i = 0; i < gradient->size(); ++i)
      squares += gradient->data()[i] * gradient->data()[i];
  return hold_along_a_direction(inputs, d, d_out, problem.options(), seed,
                                1e-6 * std::sqrt(squares));
}

Verdict far_apart(std::uint64_t seed) {
  return with_far_apart([seed](FarApart& memory) {
    const AttentionShape shape{2, 1, 20, 23, 6};
    const auto inputs = make_inputs<float>(shape, Data::kNormal, seed);
    const auto d_out = normal<float>(shape.of_queries(), seed + 1000);
    const auto forward = inputs.forward();
    const auto want = inputs.backward(d_out);
    const auto d_q = memory.tensor<4>(shape.of_queries()), d_k = memory.tensor<4>(shape.of_keys()),
               d_v = memory.tensor<4>(shape.of_keys());
    flash_attention_backward<float>(
        {memory.tensor(inputs.q), memory.tensor(inputs.k), memory.tensor(inputs.v),
         memory.tensor(converted<float>(forward.out.value)),
         memory.tensor(converted<float>(forward.lse)), memory.tensor(d_out), d_q, d_k, d_v});
    const double bound =
        attention_backward_bound(shape, forward.largest_score, unit_roundoff<float>());
    return gradients_text(wrong_in<float>(d_q, want.d_q, bound, "query", 0),
                          wrong_in<float>(d_k, want.d_k, bound, "key", 0),
                          wrong_in<float>(d_v, want.d_v, bound, "key", 0));
  });
}

// What a call holds beyond its arguments, in bytes.
std::size_t extra_bytes(Index sequence) {
  const AttentionShape shape{
      .batch = 1, .heads = 2, .queries = sequence, .keys = sequence, .head_dim = 32};
  const auto q = normal<float>(shape.of_queries(), 1), d_out = normal<float>(shape.of_queries(), 2);
  const Tensor<float, 3> lse(shape.of_rows());
  Tensor<float, 4> d_q(shape.of_queries()), d_k(shape.of_keys()), d_v(shape.of_keys());
  return host_memory::extra_bytes_of([&] {
    flash_attention_backward<float>({q.view(), q.view(), q.view(), q.view(), lse.view(),
                                     d_out.view(), d_q.view(), d_k.view(), d_v.view()});
  });
}

Verdict memory_grows_no_faster_than_the_sequence(std::uint64_t) {
  const std::size_t few = extra_bytes(256), many = extra_bytes(1024);
  return grows_no_faster(256, few, many, 5 * few + 65536, "P of one head is");
}

}  // namespace

TaskUnderTest task_under_test() {
  TaskUnderTest task{.id = "part2.flash_backward", .cases = {}};
  task.cases.push_back({"delta", "delta", delta_is_the_row_sum});
  for (const AttentionCase& problem : part2::attention_cases()) {
    using enum part2::Data;  // of which no gradient is known: dQ would be 0 * inf, P any number
    if (problem.data == kMinusInfinity || problem.data == kLowest) continue;
    task.cases.push_back({problem.name, problem.requirement(), [problem](auto seed) {
                            return problem.float64 ? judge<double>(problem, seed)
                                                   : judge<float>(problem, seed);
                          }});
  }
  const AttentionCase some_rows{.name = "rows whose lse is -inf have no weights",
                                .shape = {2, 2, 40, 50, 16}};
  task.cases.push_back({some_rows.name, "special values", [some_rows](auto seed) {
                          return judge<float>(some_rows, seed, Lse::kMinusInfinityInEveryThirdRow);
                        }});
  if (in_process())
    task.cases.push_back({"batches 2147483648 elements apart", "strides", far_apart});
  for (const bool causal : {false, true})
    task.cases.push_back({causal ? "gradient check (causal)" : "gradient check",
                          causal ? "mask" : "whole blocks",
                          [causal](auto seed) { return gradients_are_differences(seed, causal); }});
  task.cases.push_back(
      {"along a direction: 2048 queries and keys", "mask", gradients_hold_along_a_direction});
  task.cases.push_back({.name = "memory grows no faster than the sequence",
                        .requirement = "memory",
                        .run = memory_grows_no_faster_than_the_sequence,
                        .challenge = true});
  return task;
}

}  // namespace flash::harness
