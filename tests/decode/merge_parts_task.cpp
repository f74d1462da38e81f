// Task decode.merge_parts: parts of a softmax against their mean in float64.
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "bonus_decode/flash_decode.hpp"
#include "harness/cases/attention_case.hpp"
#include "harness/cases/far_apart.hpp"
#include "harness/cases/padded_pass.hpp"
#include "harness/diagnosis/split.hpp"
#include "harness/judge/watched_memory.hpp"

namespace flash::harness {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();  // lse of a part without keys

struct MergeCase {
  std::string name;
  Index parts = 2, rows = 5, head_dim = 16;
  // lse of a part and row; without it as `data` says
  std::function<double(int s, int row)> lse = nullptr;
  Layout layout = Layout::kRowMajor;
  Index nan_part = -1;  // of which row 1 has a NaN in column 3 of its out
  Index shift = 0;      // of the tensors' first element behind an aligned address
  // "part_out" or "part_lse": behind its end there is no memory
  std::string nothing_behind = "";
  Data data = Data::kNormal;
};

// By requirement (tasks.toml).
std::vector<std::pair<const char*, std::vector<MergeCase>>> merge_cases() {
  const std::vector<MergeCase> parts{
      {.name = "two parts: 5 rows of 16"},
      {.name = "one part is the result", .parts = 1},
      {.name = "64 parts: 20 rows of 64", .parts = 64, .rows = 20, .head_dim = 64},
      {.name = "1000 parts", .parts = 1000, .rows = 3, .head_dim = 8},
      {.name = "equal parts", .parts = 7, .lse = [](int, int) { return 0.5; }},
      {.name = "each part weighs more than those before it",
       .parts = 12,
       .lse = [](int s, int row) { return s + row; }},
      {.name = "strides: transposed", .parts = 3, .rows = 9, .layout = Layout::kTransposed},
      {.name = "strides: spread out", .parts = 3, .rows = 9, .layout = Layout::kSpread},
      {.name = "tensors that are not aligned", .parts = 3, .shift = 1},
      {.name = "33000 parts", .parts = 33000, .rows = 1, .head_dim = 1},
      {.name = "66000 rows", .parts = 1, .rows = 66000, .head_dim = 1},
      {.name = "one row and one column", .parts = 5, .rows = 1, .head_dim = 1},
  };
  const std::vector<MergeCase> special{
      {.name = "lse above 100",
       .parts = 6,
       .lse = [](int s, int row) { return 100 + 20 * ((s + row) % 5); }},
      {.name = "lse below -200",
       .parts = 6,
       .lse = [](int s, int row) { return -200 - (3 * s + row) % 4; }},
      {.name = "equal lse of -2e38 in every second row",
       .parts = 6,
       .lse = [](int, int row) { return row % 2 == 0 ? 0.5 : -2e38; }},
      {.name = "lse from -3e38 to 3e38",
       .parts = 4,
       .lse = [](int s, int) { return s == 2 ? 3e38 : -3e38; }},
      {.name = "NaN in the out of one part", .parts = 4, .nan_part = 2},
      {.name = "NaN in the out of a part of little weight",
       .parts = 4,
       .lse = [](int s, int) { return s == 2 ? -20 : 0.5; },
       .nan_part = 2},
      {.name = "999 parts of little weight",
       .parts = 1000,
       .rows = 3,
       .head_dim = 8,
       .lse = [](int s, int) { return s == 0 ? 12 : 0.01 * (37 * s % 101); }},
      {.name = "NaN in the lse of one part",
       .parts = 4,
       .lse = [](int s, int row) { return s == 1 && row == 2 ? NAN : 0.25; }},
  };
  const std::vector<MergeCase> empty{
      {.name = "no parts", .parts = 0},
      {.name = "an empty part alone", .parts = 1, .lse = [](int, int) { return kNone; }},
      {.name = "nothing but empty parts", .parts = 3, .lse = [](int, int) { return kNone; }},
      {.name = "the first part is empty",
       .lse = [](int s, int row) { return s == 0 ? kNone : 0.1 * row; }},
      {.name = "the last part is empty",
       .lse = [](int s, int row) { return s == 1 ? kNone : 0.1 * row; }},
      {.name = "every third part is empty",
       .parts = 9,
       .lse = [](int s, int row) { return (s + row) % 3 == 0 ? kNone : s % 4 - 1.0; }},
      {.name = "one row is empty and the others are not",
       .parts = 4,
       .lse = [](int s, int row) { return row == 3 ? kNone : 1.0 * s; }},
  };
  return {{"parts", parts}, {"special values", special}, {"empty parts", empty}};
}

// What merge_parts() has to give: attention whose scores are the lse of the parts, row by row. What
// a part without keys holds counts nothing. out (1, 1, rows, head_dim), lse (1, 1, rows).
struct Merged : AttentionOracle {
  double bound;

  Merged(const Tensor<float, 3>& part_out, const Tensor<float, 3>& part_lse) {
    const Index parts = part_out.extent(0), rows = part_out.extent(1), d = part_out.extent(2);
    out.value = out.magnitude = Tensor<double, 4>({1, 1, rows, d});
    lse = Tensor<double, 3>({1, 1, rows});
    Tensor<double, 4> q({1, 1, 1, d}), k({1, 1, parts, d}), v = k;
    q(0, 0, 0, 0) = 1;
    double difference = 0;  // of two lse of a row
    for (Index row = 0; row < rows; ++row) {
      double largest = kNone, least = -kNone;
      for (Index s = 0; s < parts; ++s) {
        const double x = k(0, 0, s, 0) = part_lse(0, s, row);
        if (x != kNone) largest = std::fmax(largest, x), least = std::fmin(least, x);
        for (Index c = 0; c < d; ++c) v(0, 0, s, c) = x == kNone ? 0 : part_out(s, row, c);
      }
      difference = std::fmax(difference, largest - least);
      const auto one = attention_oracle<double>(q.view(), k.view(), v.view(), {.scale = 1});
      std::copy_n(one.out.value.data(), d, &out.value(0, 0, row, 0));
      std::copy_n(one.out.magnitude.data(), d, &out.magnitude(0, 0, row, 0));
      lse(0, 0, row) = one.lse(0, 0, 0);
    }
    // exp's argument is rounded; where its error is large its weight is 0.
    bound =
        0x1p-24 * (8 + 2 * std::fmin(difference, 100) + 4 * std::sqrt(static_cast<double>(parts)));
  }
};

// "" where out (1, rows, head_dim) and lse (1, 1, rows) are right.
std::string wrong_merge(const Tensor<float, 3>& part_out, const Tensor<float, 3>& part_lse,
                        TensorView<const float, 3> out, TensorView<const float, 3> lse) {
  const Merged want(part_out, part_lse);
  return wrong_forward(with_heads(out), lse, want, want.bound, want.bound, "row", 0);
}

struct MergeCall {
  MergeCase problem;
  Tensor<float, 3> part_out, part_lse;
  PassTensor<float, 3> out_of_parts, lse_of_parts, out, lse;
  double fill;

  MergeCall(const MergeCase& of, std::uint64_t seed, double filled = kPoisoned)
      : problem(of),
        part_out({of.parts, of.rows, of.head_dim}),
        part_lse({1, of.parts, of.rows}),
        out_of_parts("part_out", inputs(seed), of.layout, of.shift, filled),
        lse_of_parts("part_lse", part_lse, of.layout, of.shift, filled),
        out("out", {1, of.rows, of.head_dim}, of.layout, of.shift, filled),
        lse("lse", {1, 1, of.rows}, of.layout, of.shift, filled),
        fill(filled) {}

  void run() {
    const auto plane = [](const auto& tensor) {
      const auto view = tensor.in_call();
      return TensorView<float, 2>(view.data(), {view.extent(1), view.extent(2)},
                                  {view.stride(1), view.stride(2)});
    };
    const auto of_lse = lse.in_call();
    merge_parts(out_of_parts.in_call(), plane(lse_of_parts), plane(out),
                {of_lse.data(), {of_lse.extent(2)}, {of_lse.stride(2)}});
  }
  void copy_back() {
    for (auto* const tensor : {&out_of_parts, &lse_of_parts, &out, &lse}) tensor->copy_back();
  }

  SeenForward seen() {
    const Index parts = problem.parts, rows = problem.rows, d = problem.head_dim;
    const double bound = Merged(part_out, part_lse).bound;
    const Tensor<double, 4> zeros({rows, 1, parts, d});
    SeenForward seen{.shape = {rows, 1, 1, parts, d},
                     .k = {Tensor<double, 4>({rows, 1, 1, parts})},
                     .v = {zeros},
                     .has_scores = true,
                     .out = Tensor<double, 4>({rows, 1, 1, d}),
                     .lse = Tensor<double, 3>({rows, 1, 1}),
                     .precision = precision_of<float>(bound),
                     .lse_bound = bound,
                     .key_by_key = true,
                     .fill = fill};
    std::copy_n(in_float64(out.view()).data(), seen.out.size(), seen.out.data());
    std::copy_n(in_float64(lse.view()).data(), seen.lse.size(), seen.lse.data());
    out.add_misplaced(seen.misplaced, Output::kOut);
    const auto held = std::make_shared<Tensor<double, 4>>(zeros);
    for (Index row = 0; row < rows; ++row)
      for (Index s = 0; s < parts; ++s) {
        const double x = seen.k.values(row, 0, 0, s) = part_lse(0, s, row);
        for (Index c = 0; c < d; ++c) {
          (*held)(row, 0, s, c) = part_out(s, row, c);
          seen.v.values(row, 0, s, c) = x == kNone ? 0 : part_out(s, row, c);
        }
      }
    seen.own_mistakes = [held, fill = fill](auto& known) { add_merge_mistakes(known, held, fill); };
    return seen;
  }

 private:
  const Tensor<float, 3>& inputs(std::uint64_t seed) {
    const bool integers = problem.data == Data::kSmallIntegers;
    part_out = make_input<3>(
        part_out.shape(), problem.data == Data::kNaN ? Pattern::kNaN : Pattern::kNormal, 2 * seed);
    const auto x = make_input<3>({1, problem.rows, problem.parts}, pattern_of_scores(problem.data),
                                 2 * seed + 1);
    for (Index n = 0; integers && n < part_out.size(); ++n)
      part_out.data()[n] = std::round(2 * part_out.data()[n]);
    for (Index s = 0; s < problem.parts; ++s)
      for (Index row = 0; row < problem.rows; ++row) {
        float& of = part_lse(0, s, row) = x(0, row, s);
        if (integers) of = std::round(2 * of);
        if (problem.lse)
          of = static_cast<float>(problem.lse(static_cast<int>(s), static_cast<int>(row)));
        // An empty part may hold anything: here NaN, but not the one of an output never written.
        for (Index c = 0; c < problem.head_dim && of == kNone; ++c) part_out(s, row, c) = NAN;
      }
    if (problem.nan_part >= 0) part_out(problem.nan_part, 1, 3) = NAN;
    return part_out;
  }
};

Verdict judge_merge(const MergeCase& problem, std::uint64_t seed) {
  MergeCall call(problem, seed);
  std::optional<harness::WatchBehind> watch;
  for (auto* const input : {&call.out_of_parts, &call.lse_of_parts})
    if (input->name() == problem.nothing_behind) watch.emplace(input->padded());
  try {
    call.run();
  } catch (const KernelError&) {
    if (touched_behind()) return {false, read_behind(problem.nothing_behind)};
    throw;
  }
  watch.reset();
  call.copy_back();
  if (const std::string damage =
          damage_of(call.out, call.lse, call.out_of_parts, call.lse_of_parts);
      !damage.empty())
    return {false, damage};
  const std::string wrong =
      wrong_merge(call.part_out, call.part_lse, call.out.view(), call.lse.view());
  if (wrong.empty()) return {true, ""};
  Verdict verdict = explained<SeenForward>(wrong, call.seen(), [=](const Probe& probe) {
    MergeCase other = problem;
    other.rows = probe.shape.batch * probe.shape.queries, other.parts = probe.shape.keys;
    other.head_dim = probe.shape.head_dim, other.data = probe.data;
    other.lse = nullptr, other.nan_part = -1;
    MergeCall again(other, seed, probe.fill);
    again.run();
    again.copy_back();
    return again.seen();
  });
  verdict.diagnose = [diagnose = verdict.diagnose] {
    const Diagnosis found = diagnose();
    return Diagnosis{in_words_of_parts(found.name), in_words_of_parts(found.text), found.kind};
  };
  verdict.explain = [explain = verdict.explain] { return in_words_of_parts(explain()); };
  return verdict;
}

Verdict judge_far_apart(std::uint64_t seed) {
  return with_far_apart([seed](FarApart& memory) {
    const auto part_out = make_input<3>({2, 2, 6}, Pattern::kNormal, 2 * seed),
               part_lse = make_input<3>({1, 2, 2}, Pattern::kNormal, 2 * seed + 1);
    Tensor<float, 2> lse_of_parts({2, 2});
    std::copy_n(part_lse.data(), 4, lse_of_parts.data());
    const auto out = memory.tensor<float, 2>({2, 6});
    const auto lse = memory.tensor<float, 1>({2});
    merge_parts(memory.tensor(part_out), memory.tensor(lse_of_parts), out, lse);
    return wrong_merge(part_out, part_lse, {out.data(), {1, 2, 6}, {0, out.stride(0), 1}},
                       {lse.data(), {1, 1, 2}, {0, 0, lse.stride(0)}});
  });
}

}  // namespace

TaskUnderTest merge_parts_task() {
  TaskUnderTest task{.id = "decode.merge_parts"};
  for (const auto& [requirement, problems] : merge_cases())
    for (const MergeCase& problem : problems)
      task.add(problem.name, requirement,
               [problem](auto seed) { return judge_merge(problem, seed); });
  task.add(kOtherNumbersName, "parts", [](auto seed) {
    return with_other_numbers(seed, [](auto of) { return judge_merge({}, of); });
  });
  task.add(kBehindName, "parts", [](auto seed) {
    return first_failure({judge_merge({.nothing_behind = "part_out"}, seed),
                          judge_merge({.nothing_behind = "part_lse"}, seed)});
  });
  task.add(kFarApartName, "parts", Needs::kSparseMemory, judge_far_apart);
  return task;
}

}  // namespace flash::harness
