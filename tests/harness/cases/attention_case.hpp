// Problems of attention, and one call of a pass on each, in host memory or on a device: the graded
// cases of part 2, of part 3 and of the bonus, which every rung of their ladders runs too.
//
//   ForwardCall<float> call(problem, seed);  // ForwardCall<float, InPlace>: in host memory
//   flash_attention_forward_cuda(call.tensors.pass());
//   return call.verdict();
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/registry.hpp"
#include "harness/cases/attention_data.hpp"
#include "harness/cases/device_copy.hpp"
#include "harness/cases/padded_pass.hpp"

namespace flash::harness {

struct AttentionCase {
  std::string name = {};
  AttentionShape shape;
  bool causal = false;
  Data data = Data::kNormal;
  // How many rows belong together. The keys are 0 where the call is not told; a verdict then counts
  // keys in blocks as large as those of queries.
  Blocks blocks = {};
  DType type = DType::kFloat32;
  Layout layout = Layout::kRowMajor;
  std::optional<double> scale = std::nullopt;
  const char* nan_in = nullptr;  // "q", "k" or "d_out": a NaN in row `nan_row` of the first head
  Index nan_row = 0;
  bool without_weights = false;  // backward: lse of every third row is -inf
  Index shift = 0;       // of the tensors' first element behind an aligned address, in elements
  bool sampled = false;  // only the first, a middle and the last head are compared with the oracle
  // Asked for beside the bound that follows from the precision.
  std::optional<Tolerance> tolerance = std::nullopt;
  void (*own_mistakes)(std::vector<Mistake>& known) = nullptr;  // of the task
  bool lse_only = false;                                        // out is not looked at
  // Another shape that code which solves this case solves as well, however little of it is written.
  std::optional<AttentionShape> also_solved = std::nullopt;

  AttentionOptions options() const { return {.causal = causal, .scale = scale}; }
  // The largest score as bounds of errors take it: differences of scores that are all equal, or
  // powers of 2, are exact.
  double inexact(double largest_score) const {
    return data == Data::kLowest || data == Data::kEdge ? 0 : largest_score;
  }
  // Else dQ would be 0 * inf, or exp(S - lse) any number.
  bool has_gradients() const {
    return data != Data::kMinusInfinity && data != Data::kLowest && data != Data::kEdge;
  }
  Index block_of_keys() const { return blocks.keys > 0 ? blocks.keys : blocks.queries; }

  // Which requirement of its task (tasks.toml) it belongs to.
  std::string requirement() const;

  // The same problem of Half or BFloat16, whose name says so.
  AttentionCase of_type(DType other) const;

  // What the code under test is run on again.
  AttentionCase of_probe(const Probe& probe) const;
};

// What the course's sources ask of their kernels.
inline constexpr Tolerance kToleranceOfSources{1e-2, 0};

// What every pass has to solve, forward or backward, in C++ and in CUDA.
std::vector<AttentionCase> cases_of_all_passes();

// What only an online softmax with a true running maximum survives, NaN, and scales.
std::vector<AttentionCase> cases_of_forward_passes();

// cases_of_all_passes(), and shapes, types and addresses that are hard on a device.
std::vector<AttentionCase> cases_on_device();

// For GPUs only, since the emulator takes too long: the problems that the course's sources try
// their kernels on, at their tolerance beside ours, and more heads than a grid is tall or deep
// (65535).
std::vector<AttentionCase> long_cases_on_device();

// use(T()) for the element type of a case on a device.
template <class Use>
auto with_type(DType type, Use use) {
  if (type == DType::kFloat16) return use(Half());
  if (type == DType::kBFloat16) return use(BFloat16());
  return use(float());
}

// out and lse beside the oracle's; "" when they are right.
template <class T>
std::string wrong_outputs(const AttentionCase& problem, TensorView<const T, 4> q,
                          TensorView<const T, 4> k, TensorView<const T, 4> v,
                          TensorView<const T, 4> out, TensorView<const LseType<T>, 3> lse);

// What a case asks of a backward pass: one gradient, or all of them.
enum class Wanted { kDV, kDK, kDQ, kAll };

// Gradients beside the oracle's. Of the pass the inputs and d_out count; out and lse are not looked
// at.
template <class T>
std::string wrong_gradients(const AttentionCase& problem, const AttentionBackward<T>& pass,
                            TensorView<const T, 4> d_q, TensorView<const T, 4> d_k,
                            TensorView<const T, 4> d_v, Wanted wanted = Wanted::kAll);

// Also of the scores that the usual scale gives: a mistake may take it.
template <class T>
double largest_score_of(const AttentionInputs<T>& inputs, const AttentionCase& problem) {
  AttentionOptions options = problem.options();
  const double largest = inputs.forward(options).largest_score;
  if (!std::exchange(options.scale, std::nullopt)) return largest;
  return std::fmax(largest, inputs.forward(options).largest_score);
}

// The judge's names of these cases, for each task.
inline constexpr const char* kOtherNumbersName = "the same memory with other numbers";
inline constexpr const char* kManyHeadsName = "more heads than a grid is tall: 65600 x 1 x 3";
inline constexpr const char* kBehindName = "nothing is read behind the end of an input";

// Of one verdict after another, each of another seed: what one call found out about its memory must
// not be believed by the next, which finds other numbers at the same addresses.
template <class Judge>
Verdict with_other_numbers(std::uint64_t seed, Judge judge) {
  for (const std::uint64_t other : {seed, seed + 1000})
    if (Verdict verdict = judge(other); !verdict.pass) {
      if (other != seed)
        verdict.text =
            "The call before this one, with other numbers at the same addresses, was "
            "right: nothing may be kept between calls.\n" +
            verdict.text;
      return {false, verdict.text};
    }
  return {true, ""};
}

// How wrong out may be beside its magnitude.
template <class T>
double output_bound(const AttentionCase& problem, const AttentionShape& shape,
                    double largest_score) {
  return attention_output_bound<T>(shape, problem.inexact(largest_score));
}

// The heads that are compared with the oracle where not all are.
inline std::array<Index, 3> sampled_heads(const AttentionShape& shape) {
  const Index heads = shape.batch * shape.heads;
  return {0, heads / 2, heads - 1};
}

// wrong(of) of all heads together, or of each sampled one: of(view) is what belongs to the head.
template <class Wrong>
Verdict head_by_head(const AttentionCase& problem, Wrong wrong) {
  if (!problem.sampled)
    return verdict_on(wrong([]<class T, int Rank>(TensorView<const T, Rank> x) { return x; }));
  for (const Index head : sampled_heads(problem.shape)) {
    const Index b = head / problem.shape.heads, h = head % problem.shape.heads;
    const std::string text = wrong(
        [&]<class T, int Rank>(TensorView<const T, Rank> x) { return view_of_head(x, b, h); });
    if (!text.empty())
      return {false, "In batch " + std::to_string(b) + ", head " + std::to_string(h) + ": " + text};
  }
  return {true, ""};
}

template <class T>
AttentionInputs<T> inputs_of(const AttentionCase& problem, std::uint64_t seed) {
  auto inputs = make_inputs<T>(problem.shape, problem.data, seed);
  inputs.k = shared_in(problem.layout, 1, std::move(inputs.k));
  return inputs;
}

template <class T, template <class, int> class Memory = DeviceCopy>
struct ForwardCall {
  AttentionCase problem;
  AttentionInputs<T> inputs;
  PaddedForward<T, Memory> tensors;

  ForwardCall(const AttentionCase& of, std::uint64_t seed, double fill = kPoisoned)
      : problem(of),
        inputs(inputs_of<T>(of, seed)),
        tensors(inputs, of.layout, of.options(), of.shift, fill),
        seed_(seed) {}

  // Waits for the call and judges all that it did. With `run`, which makes the call again, the
  // verdict can be explained.
  Verdict verdict(const std::function<void(ForwardCall&)>& run = {}) {
    tensors.copy_back();
    if (const std::string changed = tensors.changed_inputs(); !changed.empty())
      return {false, changed};
    Verdict verdict = verdict_on(tensors.written_outside());
    if (verdict.pass)
      verdict = head_by_head(problem, [&](auto of) {
        const auto& [q, k, v] = inputs;
        return wrong_outputs<T>(problem, of(q.view()), of(k.view()), of(v.view()),
                                of(tensors.out.view()), of(tensors.lse.view()));
      });
    if (verdict.pass || problem.sampled || !run) return verdict;
    return explained<SeenForward>(verdict.text, seen(),
                                  [problem = problem, seed = seed_, run](const Probe& probe) {
                                    ForwardCall call(problem.of_probe(probe), seed, probe.fill);
                                    run(call);
                                    call.tensors.copy_back();
                                    return call.seen();
                                  });
  }

  static Verdict judge(const AttentionCase& problem, std::uint64_t seed,
                       const std::function<void(ForwardCall&)>& run) {
    ForwardCall call(problem, seed);
    run(call);
    return call.verdict(run);
  }

 private:
  SeenForward seen() {
    const double largest = largest_score_of(inputs, problem);
    SeenForward seen =
        tensors.seen(output_bound<T>(problem, problem.shape, largest),
                     attention_bound(problem.shape, largest, unit_roundoff<LseType<T>>()),
                     problem.blocks.queries, problem.blocks.keys);
    seen.own_mistakes = problem.own_mistakes;
    seen.also_solved = problem.also_solved;
    if (problem.lse_only) seen.out = {};
    return seen;
  }

  std::uint64_t seed_;
};

// The inputs of a backward pass: out and lse come from the oracle, and so does delta, for those who
// ask.
template <class T>
struct BackwardInputs {
  AttentionInputs<T> qkv;
  Tensor<T, 4> d_out, out;
  Tensor<LseType<T>, 3> lse;
  Tensor<float, 3> delta;

  BackwardInputs(const AttentionCase& problem, std::uint64_t seed);
};

template <class T, template <class, int> class Memory = DeviceCopy>
struct BackwardCall {
  AttentionCase problem;
  BackwardInputs<T> inputs;
  PaddedBackward<T, Memory> tensors;
  PassTensor<float, 3, Memory> delta;

  BackwardCall(const AttentionCase& of, std::uint64_t seed, double fill = kPoisoned)
      : problem(of),
        inputs(of, seed),
        tensors(inputs.qkv, inputs.out, inputs.lse, inputs.d_out, of.layout, of.options(), of.shift,
                fill),
        delta("delta", inputs.delta, layout_of_lse(of.layout), of.shift),
        seed_(seed) {}

  Verdict verdict(Wanted wanted = Wanted::kAll,
                  const std::function<void(BackwardCall&)>& run = {}) {
    tensors.copy_back();
    delta.copy_back();
    if (const std::string changed = tensors.changed_inputs() + delta.damage(); !changed.empty())
      return {false, changed};
    // A row without weights gives what it would with a d_out of 0.
    Tensor<T, 4> counted = inputs.d_out;
    const Index columns = problem.shape.head_dim;
    for (Index row = 0; problem.without_weights && row < inputs.lse.size(); row += 3)
      std::fill_n(counted.data() + row * columns, columns, T{});
    Verdict verdict = verdict_on(tensors.written_outside());
    if (verdict.pass)
      verdict = head_by_head(problem, [&](auto of) {
        const auto& [q, k, v] = inputs.qkv;
        return wrong_gradients<T>(
            problem,
            {of(q.view()), of(k.view()), of(v.view()), {}, {}, of(std::as_const(counted).view())},
            of(tensors.d_q.view()), of(tensors.d_k.view()), of(tensors.d_v.view()), wanted);
      });
    if (verdict.pass || problem.sampled || !run) return verdict;
    return explained<SeenBackward>(
        verdict.text, seen(wanted),
        [problem = problem, seed = seed_, wanted, run](const Probe& probe) {
          BackwardCall call(problem.of_probe(probe), seed, probe.fill);
          run(call);
          call.tensors.copy_back();
          return call.seen(wanted);
        });
  }

  static Verdict judge(const AttentionCase& problem, std::uint64_t seed, Wanted wanted,
                       const std::function<void(BackwardCall&)>& run) {
    BackwardCall call(problem, seed);
    run(call);
    return call.verdict(wanted, run);
  }

 private:
  SeenBackward seen(Wanted wanted) {
    const double largest = largest_score_of(inputs.qkv, problem);
    SeenBackward seen =
        tensors.seen(attention_gradient_bound<T>(problem.shape, largest), problem.blocks.keys);
    if (wanted != Wanted::kAll && wanted != Wanted::kDQ) seen.d_q = {};
    if (wanted != Wanted::kAll && wanted != Wanted::kDK) seen.d_k = {};
    if (wanted != Wanted::kAll && wanted != Wanted::kDV) seen.d_v = {};
    return seen;
  }

  std::uint64_t seed_;
};

}  // namespace flash::harness
