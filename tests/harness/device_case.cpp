// Implements device_case.hpp.
#include "harness/device_case.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/gradient_verdicts.hpp"

namespace flash::harness {
namespace {

// Those that are compared with the oracle where not all are.
std::array<Index, 3> sampled_heads(const AttentionShape& shape) {
  const Index heads = shape.batch * shape.heads;
  return {0, heads / 2, heads - 1};
}

// wrong(of) of all heads together, or of each sampled one: of(view) is what belongs to the head.
template <class Wrong>
Verdict head_by_head(const DeviceCase& problem, Wrong wrong) {
  if (!problem.sampled) {
    const std::string text =
        wrong([]<class T, int Rank>(TensorView<const T, Rank> x) { return x; });
    return {text.empty(), text};
  }
  for (const Index head : sampled_heads(problem.shape)) {
    const Index b = head / problem.shape.heads, h = head % problem.shape.heads;
    const std::string text =
        wrong([&]<class T, int Rank>(TensorView<const T, Rank> x) { return head_of(x, b, h); });
    if (!text.empty())
      return {false, "In batch " + std::to_string(b) + ", head " + std::to_string(h) + ": " + text};
  }
  return {true, ""};
}

// What Half loses below its least normal number, 2^-14, as a part of the magnitude that `bound` is
// of: up to 2^-25 of a result, and of each of the `terms` weights that it is the sum of, which meet
// values of about 1.
void add_underflow(WithMagnitude& tensor, double bound, Index terms) {
  for (Index i = 0; i < tensor.magnitude.size(); ++i)
    tensor.magnitude.data()[i] += 0x1p-25 * (1 + static_cast<double>(terms)) / bound;
}

// Of out. Differences of scores that are all equal are exact.
template <class T>
double output_bound(const DeviceCase& problem, const AttentionShape& shape, double largest_score) {
  return attention_output_bound<T>(shape, problem.data == Data::kLowest ? 0 : largest_score);
}

// The same of out, whose weights meet v.
void add_underflow(WithMagnitude& out, TensorView<const Half, 4> v, const AttentionShape& shape,
                   bool causal, double bound) {
  const auto& [batch, heads, queries, keys, head_dim] = shape;
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index c = 0; c < head_dim; ++c) {
        double sizes = 0;
        for (Index i = 0, j = 0; i < queries; ++i) {
          for (; j < shape.visible_keys(i, causal); ++j)
            sizes += std::fabs(static_cast<double>(v(b, h, j, c)));
          out.magnitude(b, h, i, c) += 0x1p-25 * (1 + sizes) / bound;
        }
      }
}

// rowsum(out * d_out) in float64, of what the kernels get.
template <class T>
Tensor<float, 3> delta_of(const Tensor<T, 4>& out, const Tensor<T, 4>& d_out) {
  const Index columns = out.extent(3);
  Tensor<float, 3> delta({out.extent(0), out.extent(1), out.extent(2)});
  for (Index row = 0; row < delta.size(); ++row) {
    double sum = 0;
    for (Index c = row * columns; c < (row + 1) * columns; ++c)
      sum += static_cast<double>(out.data()[c]) * static_cast<double>(d_out.data()[c]);
    delta.data()[row] = static_cast<float>(sum);
  }
  return delta;
}

}  // namespace

// ---- Cases --------------------------------------------------------------------------------------

using enum Data;
using enum Layout;
using enum DType;

std::string DeviceCase::requirement() const {
  return requirement_of(shape, {64, 64}, data, options(), layout != kRowMajor || shift != 0,
                        type != kFloat32, nan_in != nullptr || without_weights);
}

DeviceCase DeviceCase::of_type(DType other) const {
  DeviceCase copy = *this;
  copy.name = (other == kFloat16 ? "half: " : "bfloat16: ") + name;
  copy.type = other;
  return copy;
}

void add_cases_of_both_passes(std::vector<DeviceCase>& cases) {
  const DeviceCase unaligned{
      .name = "tensors that are not aligned", .shape = {1, 1, 70, 70, 64}, .shift = 1};
  const DeviceCase ragged{.name = "causal (ragged and strided)",
                          .shape = {1, 2, 70, 33, 16},
                          .causal = true,
                          .layout = kSpread};
  cases.insert(
      cases.end(),
      {{.name = "one query and one key", .shape = {1, 1, 1, 1, 8}},
       {.name = "one query and many keys", .shape = {1, 2, 1, 300, 16}},
       {.name = "fewer queries than keys", .shape = {1, 2, 33, 170, 16}},
       {.name = "more queries than keys", .shape = {1, 2, 170, 33, 16}},
       {.name = "no keys", .shape = {1, 2, 5, 0, 8}},
       {.name = "head_dim 1", .shape = {2, 1, 17, 17, 1}},
       {.name = "causal: fewer queries than keys", .shape = {1, 2, 33, 170, 16}, .causal = true},
       {.name = "causal: more queries than keys", .shape = {1, 2, 170, 33, 16}, .causal = true},
       {.name = "causal: head_dim 128", .shape = {1, 1, 100, 100, 128}, .causal = true},
       {.name = "causal: head_dim 256", .shape = {1, 1, 65, 65, 256}, .causal = true},
       {.name = "equal scores", .shape = {1, 1, 33, 147, 16}, .data = kEqual},
       {.name = "strides: padded rows", .shape = {2, 2, 20, 83, 16}, .layout = kPaddedRows},
       {.name = "strides: transposed", .shape = {2, 2, 20, 83, 16}, .layout = kTransposed},
       {.name = "strides: spread out", .shape = {2, 2, 20, 83, 16}, .layout = kSpread},
       {.name = "strides: one layout for each tensor", .shape = {2, 2, 9, 11, 4}, .layout = kMixed},
       {.name = "neighbouring rows far apart", .shape = {1, 1, 40, 50, 16}, .data = kFarApart},
       {.name = "strides: interleaved heads",
        .shape = {2, 3, 70, 70, 16},
        .causal = true,
        .layout = kInterleavedHeads},
       {.name = "tensors that are not aligned", .shape = {1, 2, 70, 70, 64}, .shift = 1},
       unaligned.of_type(kFloat16),
       unaligned.of_type(kBFloat16),
       ragged.of_type(kFloat16),
       ragged.of_type(kBFloat16)});
  for (const Index sequence : {63, 64, 65, 100, 257})
    for (const bool causal : {false, true})
      cases.push_back(
          {.name = (causal ? "causal: sequence " : "sequence ") + std::to_string(sequence),
           .shape = {1, 1, sequence, sequence, 64},
           .causal = causal});
}

std::vector<DeviceCase> long_cases_of_both_passes() {
  DeviceCase source{.name = "half: 8 x 8 x 2048",
                    .shape = {8, 8, 2048, 2048, 64},
                    .data = kHalfNormal,
                    .type = kFloat16,
                    .sampled = true,
                    .tolerance = kToleranceOfSources};
  DeviceCase causal = source;
  causal.name = "half: causal: 8 x 8 x 2048";
  causal.causal = true;
  return {{.name = "more heads than a grid is tall: 65600 x 1 x 3", .shape = {65600, 1, 1, 3, 2}},
          source,
          causal,
          {.name = "bfloat16: causal: 2 x 8 x 2048",
           .shape = {2, 8, 2048, 2048, 64},
           .causal = true,
           .type = kBFloat16,
           .sampled = true}};
}

// ---- Forward ------------------------------------------------------------------------------------

template <class T>
std::string wrong_outputs(const DeviceCase& problem, TensorView<const T, 4> q,
                          TensorView<const T, 4> k, TensorView<const T, 4> v,
                          TensorView<const T, 4> out, TensorView<const float, 3> lse, Index block) {
  AttentionOracle oracle = attention_oracle(q, k, v, problem.options());
  const AttentionShape shape = attention_shape(q.shape(), k.shape());
  const double bound = output_bound<T>(problem, shape, oracle.largest_score);
  if constexpr (std::is_same_v<T, Half>) add_underflow(oracle.out, v, shape, problem.causal, bound);
  if (const std::string wrong =
          wrong_in<T>(out, oracle.out, bound, "query", block, problem.tolerance);
      !wrong.empty())
    return wrong;
  // lse is a float32 sum of weights that were not rounded, whatever T is.
  return wrong_lse<float>(
      lse, oracle.lse, attention_bound(shape, oracle.largest_score, unit_roundoff<float>()), block);
}

template <class T>
ForwardCall<T>::ForwardCall(const DeviceCase& of, std::uint64_t seed, double fill)
    : problem(of),
      inputs(make_inputs<T>(of.shape, of.data, seed)),
      tensors(inputs, of.layout, of.options(), of.shift, fill),
      seed_(seed) {}

template <class T>
Verdict ForwardCall<T>::verdict(Index block, const std::function<void(ForwardCall&)>& run_again) {
  device::synchronize();
  tensors.copy_back();
  if (const std::string changed = tensors.changed_inputs(); !changed.empty())
    return {false, changed};
  Verdict verdict = verdict_on(tensors.written_outside());
  if (verdict.pass)
    verdict = head_by_head(problem, [&](auto of) {
      const auto& [q, k, v] = inputs;
      return wrong_outputs<T>(problem, of(q.view()), of(k.view()), of(v.view()),
                              of(tensors.out.view()), of(tensors.lse.view()), block);
    });
  if (verdict.pass || problem.sampled || !run_again) return verdict;
  return explained<SeenForward>(
      verdict.text, seen(block),
      [problem = problem, seed = seed_, block, run_again](const Probe& probe) {
        DeviceCase other = problem;
        other.shape = probe.shape;
        other.data = probe.data;
        ForwardCall call(other, seed, probe.fill);
        run_again(call);
        device::synchronize();
        call.tensors.copy_back();
        return call.seen(block);
      });
}

template <class T>
SeenForward ForwardCall<T>::seen(Index block) {
  const double largest = inputs.forward(problem.options()).largest_score;
  return tensors.seen(output_bound<T>(problem, problem.shape, largest),
                      attention_bound(problem.shape, largest, unit_roundoff<float>()), block, 0);
}

// ---- Backward -----------------------------------------------------------------------------------

template <class T>
std::string wrong_gradients(const DeviceCase& problem, const AttentionBackward<T>& pass,
                            TensorView<const T, 4> d_q, TensorView<const T, 4> d_k,
                            TensorView<const T, 4> d_v, Wanted wanted, Index block) {
  const AttentionOracle forward = attention_oracle(pass.q, pass.k, pass.v, problem.options());
  auto want = attention_backward_oracle(pass.q, pass.k, pass.v, pass.d_out, problem.options());
  const AttentionShape shape = pass.shape();
  const double bound = attention_gradient_bound<T>(shape, forward.largest_score);
  if constexpr (std::is_same_v<T, Half>)
    for (WithMagnitude* gradient : {&want.d_q, &want.d_k, &want.d_v})
      add_underflow(*gradient, bound, std::max(shape.queries, shape.keys));
  const auto wrong = [&](Wanted which, TensorView<const T, 4> got, const WithMagnitude& expected,
                         const char* rows) {
    return wanted == which || wanted == Wanted::kAll
               ? wrong_in<T>(got, expected, bound, rows, block, problem.tolerance)
               : "";
  };
  return gradients_text(wrong(Wanted::kDQ, d_q, want.d_q, "query"),
                        wrong(Wanted::kDK, d_k, want.d_k, "key"),
                        wrong(Wanted::kDV, d_v, want.d_v, "key"));
}

template <class T>
BackwardInputs<T>::BackwardInputs(const DeviceCase& problem, std::uint64_t seed)
    : qkv(make_inputs<T>(problem.shape, problem.data, seed)),
      d_out(make_d_out<T>(problem.shape, problem.data, seed)) {
  const AttentionShape& shape = problem.shape;
  if (problem.nan_in != nullptr) {
    const std::string where = problem.nan_in;
    (where == "q"   ? qkv.q
     : where == "k" ? qkv.k
                    : d_out)(0, 0, problem.nan_row, 0) = static_cast<T>(NAN);
  }
  const auto forward_of = [&](auto of) {
    return attention_oracle<T>(of(std::as_const(qkv.q).view()), of(std::as_const(qkv.k).view()),
                               of(std::as_const(qkv.v).view()), problem.options(),
                               Magnitudes::kLeftOut);
  };
  if (!problem.sampled) {
    const AttentionOracle forward = forward_of([](auto x) { return x; });
    out = converted<T>(forward.out.value);
    lse = converted<float>(forward.lse);
    for (Index row = 0; problem.without_weights && row < lse.size(); row += 3)
      lse.data()[row] = -INFINITY;
  } else {
    // Nobody looks at the gradients of the other heads, whose out is 0 and whose weights are about
    // 1 / keys.
    out = Tensor<T, 4>(shape.of_queries());
    lse = Tensor<float, 3>(shape.of_rows());
    std::fill_n(lse.data(), lse.size(), std::log(static_cast<float>(shape.keys)));
    for (const Index head : sampled_heads(shape)) {
      const Index b = head / shape.heads, h = head % shape.heads;
      const AttentionOracle forward = forward_of([&](auto x) { return head_of(x, b, h); });
      for (Index i = 0; i < shape.queries; ++i) {
        lse(b, h, i) = static_cast<float>(forward.lse(0, 0, i));
        for (Index c = 0; c < shape.head_dim; ++c)
          out(b, h, i, c) = static_cast<T>(forward.out.value(0, 0, i, c));
      }
    }
  }
  delta = delta_of(out, d_out);
}

template <class T>
BackwardCall<T>::BackwardCall(const DeviceCase& of, std::uint64_t seed, double fill)
    : problem(of),
      inputs(of, seed),
      tensors(inputs.qkv, inputs.out, inputs.lse, inputs.d_out, of.layout, of.options(), of.shift,
              fill),
      delta("delta", inputs.delta, layout_of_lse(of.layout), of.shift),
      seed_(seed) {}

template <class T>
Verdict BackwardCall<T>::verdict(Wanted wanted, Index block,
                                 const std::function<void(const BackwardCall&)>& run_again) {
  device::synchronize();
  tensors.copy_back();
  delta.copy_back();
  if (const std::string changed = tensors.changed_inputs() + delta.damage(); !changed.empty())
    return {false, changed};
  Tensor<T, 4> counted =
      inputs.d_out;  // a row without weights gives what it would with a d_out of 0
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
          of(tensors.d_q.view()), of(tensors.d_k.view()), of(tensors.d_v.view()), wanted, block);
    });
  if (verdict.pass || problem.sampled || !run_again) return verdict;
  return explained<SeenBackward>(
      verdict.text, seen(wanted),
      [problem = problem, seed = seed_, wanted, run_again](const Probe& probe) {
        DeviceCase other = problem;
        other.shape = probe.shape;
        other.data = probe.data;
        other.nan_in = nullptr;
        other.without_weights = false;
        BackwardCall call(other, seed, probe.fill);
        run_again(call);
        device::synchronize();
        call.tensors.copy_back();
        return call.seen(wanted);
      });
}

template <class T>
SeenBackward BackwardCall<T>::seen(Wanted wanted) {
  const double largest = inputs.qkv.forward(problem.options()).largest_score;
  SeenBackward seen = tensors.seen(attention_gradient_bound<T>(problem.shape, largest), 0);
  if (wanted != Wanted::kAll && wanted != Wanted::kDQ) seen.d_q = {};
  if (wanted != Wanted::kAll && wanted != Wanted::kDK) seen.d_k = {};
  if (wanted != Wanted::kAll && wanted != Wanted::kDV) seen.d_v = {};
  return seen;
}

std::string wrong_traffic(const std::string& what, bool causal,
                          const std::vector<ExpectedTraffic>& expected) {
  for (const ExpectedTraffic& tensor : expected) {
    const auto traffic = device::traffic(tensor.memory);
    if (!traffic) return "the emulator did not count";
    const std::string of =
        " bytes of " + std::string(tensor.name) + (causal ? " with a causal mask; " : "; ");
    if (traffic->loaded_bytes > tensor.most_loaded)
      return what + " loads " + std::to_string(traffic->loaded_bytes) + of + "at most " +
             std::to_string(tensor.most_loaded) + " are needed" +
             (tensor.why.empty() ? "." : ": " + tensor.why + ".");
    if (traffic->stored_bytes != tensor.stored)
      return what + " stores " + std::to_string(traffic->stored_bytes) + of + "it has to be " +
             std::to_string(tensor.stored) +
             (tensor.stored > 0 ? ", each element once." : ", since it is an input.");
  }
  return "";
}

#define FLASH_INSTANTIATE(T)                                                                     \
  template std::string wrong_outputs(const DeviceCase&, TensorView<const T, 4>,                  \
                                     TensorView<const T, 4>, TensorView<const T, 4>,             \
                                     TensorView<const T, 4>, TensorView<const float, 3>, Index); \
  template std::string wrong_gradients(const DeviceCase&, const AttentionBackward<T>&,           \
                                       TensorView<const T, 4>, TensorView<const T, 4>,           \
                                       TensorView<const T, 4>, Wanted, Index);                   \
  template struct ForwardCall<T>;                                                                \
  template struct BackwardInputs<T>;                                                             \
  template struct BackwardCall<T>
FLASH_INSTANTIATE(float);
FLASH_INSTANTIATE(Half);
FLASH_INSTANTIATE(BFloat16);

}  // namespace flash::harness
