// Task bonus.flash_backward_cuda: delta, each gradient by itself from the oracle's lse and delta, and the whole backward pass.
// When gradients are wrong, which of them says where to look. Of the sum of the weights delta has an eighth, each gradient a
// quarter, and masks, ragged ends and all the rest an eighth: half a point, 1, and half a point of 4.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <tuple>

#include "bonus/backward_cases.hpp"
#include "bonus_backward/flash_backward_cuda.hpp"
#include "common/cuda/device_tensor.hpp"
#include "harness/busy_stream.hpp"
#include "harness/device_copy.hpp"
#include "harness/graded_case.hpp"
#include "harness/gradient_verdicts.hpp"

namespace flash::harness {
namespace {

using bonus::BackwardCase;

// What a case asks for: one gradient, from the function that computes it, or all of them from the whole pass.
enum class Wanted { kDV, kDK, kDQ, kAll };

template <class T, class From, int Rank>
Tensor<T, Rank> rounded(const Tensor<From, Rank>& x) {
  Tensor<T, Rank> y(x.shape());
  for (Index i = 0; i < x.size(); ++i) y.data()[i] = static_cast<T>(x.data()[i]);
  return y;
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

// Those that are compared with the oracle where not all are.
std::array<Index, 3> sampled_heads(const AttentionShape& shape) {
  const Index heads = shape.batch * shape.heads;
  return {0, heads / 2, heads - 1};
}

// The inputs of a backward pass: out and lse come from the oracle.
template <class T>
struct Inputs {
  AttentionInputs<T> qkv;
  Tensor<T, 4> d_out, out;
  Tensor<float, 3> lse;

  Inputs(const BackwardCase& problem, std::uint64_t seed)
      : qkv(make_inputs<T>(problem.shape, problem.data, seed)), d_out(normal<T>(problem.shape.of_queries(), 1000 + seed)) {
    if (problem.nan_in != nullptr) {
      Tensor<T, 4>& x = std::string(problem.nan_in) == "q" ? qkv.q : std::string(problem.nan_in) == "k" ? qkv.k : d_out;
      x(0, 0, problem.nan_row, 0) = static_cast<T>(NAN);
    }
    const AttentionShape& shape = problem.shape;
    if (!problem.sampled) {
      const AttentionOracle forward =
          attention_oracle<T>(qkv.q.view(), qkv.k.view(), qkv.v.view(), problem.options(), Magnitudes::kLeftOut);
      out = rounded<T>(forward.out.value);
      lse = rounded<float>(forward.lse);
      return;
    }
    // Nobody looks at the gradients of the other heads, whose out is 0 and whose weights are about 1 / keys.
    out = Tensor<T, 4>(shape.of_queries());
    lse = Tensor<float, 3>(shape.of_rows());
    std::fill_n(lse.data(), lse.size(), std::log(static_cast<float>(shape.keys)));
    for (const Index head : sampled_heads(shape)) {
      const Index b = head / shape.heads, h = head % shape.heads;
      const AttentionOracle forward =
          attention_oracle<T>(head_of<T, 4>(qkv.q.view(), b, h), head_of<T, 4>(qkv.k.view(), b, h),
                              head_of<T, 4>(qkv.v.view(), b, h), problem.options(), Magnitudes::kLeftOut);
      for (Index i = 0; i < shape.queries; ++i) {
        lse(b, h, i) = static_cast<float>(forward.lse(0, 0, i));
        for (Index c = 0; c < shape.head_dim; ++c) out(b, h, i, c) = static_cast<T>(forward.out.value(0, 0, i, c));
      }
    }
  }
};

// The device's tensors of a problem, and one call.
template <class T>
struct OnDevice {
  BasicPaddedTensor<T, 4> q, k, v, out, d_out, d_q, d_k, d_v;
  BasicPaddedTensor<float, 3> lse, delta;
  DeviceCopy<T, 4> device_q, device_k, device_v, device_out, device_d_out, device_d_q, device_d_k, device_d_v;
  DeviceCopy<float, 3> device_lse, device_delta;

  OnDevice(const BackwardCase& problem, const Inputs<T>& inputs)
      : q(inputs.qkv.q, problem.layout),
        k(inputs.qkv.k, problem.layout),
        v(inputs.qkv.v, problem.layout),
        out(inputs.out, problem.layout),
        d_out(inputs.d_out, problem.layout),
        d_q(problem.shape.of_queries(), problem.layout),
        d_k(problem.shape.of_keys(), problem.layout),
        d_v(problem.shape.of_keys(), problem.layout),
        lse(inputs.lse, Layout::kRowMajor),
        delta(delta_of(inputs.out, inputs.d_out), Layout::kRowMajor),
        device_q(q, problem.shift),
        device_k(k, problem.shift),
        device_v(v, problem.shift),
        device_out(out, problem.shift),
        device_d_out(d_out, problem.shift),
        device_d_q(d_q, problem.shift),
        device_d_k(d_k, problem.shift),
        device_d_v(d_v, problem.shift),
        device_lse(lse, problem.shift),
        device_delta(delta, problem.shift) {}

  void run_dk_dv(const BackwardCase& problem) const {
    flash_backward_dk_dv_cuda<T>(device_q.view(), device_k.view(), device_v.view(), device_lse.view(), device_d_out.view(),
                                 device_delta.view(), device_d_k.view(), device_d_v.view(), problem.options());
  }
  void run_dq(const BackwardCase& problem) const {
    flash_backward_dq_cuda<T>(device_q.view(), device_k.view(), device_v.view(), device_lse.view(), device_d_out.view(),
                              device_delta.view(), device_d_q.view(), problem.options());
  }
  void run_all(const BackwardCase& problem) const {
    flash_attention_backward_cuda<T>(device_q.view(), device_k.view(), device_v.view(), device_out.view(), device_lse.view(),
                                     device_d_out.view(), device_d_q.view(), device_d_k.view(), device_d_v.view(),
                                     problem.options());
  }

  // Runs what is wanted and brings everything back. Returns the most device memory that it had beyond its arguments, in bytes.
  std::size_t run(const BackwardCase& problem, Wanted wanted) {
    const std::size_t before = device::memory_in_use();
    device::reset_peak_memory();
    switch (wanted) {
      case Wanted::kDV:
      case Wanted::kDK: run_dk_dv(problem); break;
      case Wanted::kDQ: run_dq(problem); break;
      case Wanted::kAll: run_all(problem);
    }
    device::synchronize();
    const std::size_t extra_bytes = device::peak_memory() - before;
    for (DeviceCopy<T, 4>* tensor :
         {&device_q, &device_k, &device_v, &device_out, &device_d_out, &device_d_q, &device_d_k, &device_d_v})
      tensor->copy_back();
    device_lse.copy_back();
    device_delta.copy_back();
    return extra_bytes;
  }

  // What a call did to tensors that it has to leave alone; "" when nothing. `before`: the same as it was before the call.
  std::string damage(const OnDevice& before) {
    for (const auto& [name, tensor] : {std::pair{"d_q", &d_q}, {"d_k", &d_k}, {"d_v", &d_v}})
      if (const auto where = tensor->written_outside())
        return std::string("It writes outside of `") + name + "`: " + *where + ".";
    for (const auto& [name, was, is] : {std::tuple{"q", &before.q, &q},
                                        {"k", &before.k, &k},
                                        {"v", &before.v, &v},
                                        {"out", &before.out, &out},
                                        {"d_out", &before.d_out, &d_out}})
      if (!is->same_bits(*was)) return std::string("It changes `") + name + "`. Inputs must stay as they are.";
    for (const auto& [name, was, is] : {std::tuple{"lse", &before.lse, &lse}, {"delta", &before.delta, &delta}})
      if (!is->same_bits(*was)) return std::string("It changes `") + name + "`. Inputs must stay as they are.";
    return "";
  }
};

// The gradients that are wanted, of one head or of all, beside the oracle's.
template <class T>
std::string wrong_gradients(const BackwardCase& problem, Wanted wanted, const AttentionShape& shape, TensorView<const T, 4> q,
                            TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<const T, 4> d_out,
                            TensorView<const T, 4> d_q, TensorView<const T, 4> d_k, TensorView<const T, 4> d_v) {
  const AttentionOracle forward = attention_oracle(q, k, v, problem.options());
  auto want = attention_backward_oracle(q, k, v, d_out, problem.options());
  const double bound = attention_gradient_bound<T>(shape, forward.largest_score);
  if constexpr (std::is_same_v<T, Half>)
    for (WithMagnitude* gradient : {&want.d_q, &want.d_k, &want.d_v})
      add_underflow(*gradient, bound, std::max(shape.queries, shape.keys));
  const Index block = flash_backward_blocks<T>(shape.head_dim).own;
  const auto wrong = [&](Wanted which, TensorView<const T, 4> got, const WithMagnitude& expected, const char* rows) {
    return wanted == which || wanted == Wanted::kAll ? wrong_in<T>(got, expected, bound, rows, block, problem.tolerance) : "";
  };
  const std::string in_d_q = wrong(Wanted::kDQ, d_q, want.d_q, "query"), in_d_k = wrong(Wanted::kDK, d_k, want.d_k, "key"),
                    in_d_v = wrong(Wanted::kDV, d_v, want.d_v, "key");
  if (in_d_q.empty() && in_d_k.empty() && in_d_v.empty()) return "";
  std::string text;
  if (wanted == Wanted::kAll) text = pointed_to(want, !in_d_q.empty(), !in_d_k.empty(), !in_d_v.empty(), Passes::kTwo);
  for (const auto& [name, found] : {std::pair{"dQ", &in_d_q}, {"dK", &in_d_k}, {"dV", &in_d_v}})
    if (!found->empty()) text += (text.empty() ? "" : "\n") + std::string(name) + ": " + *found;
  return text;
}

template <class T>
Verdict judge(const BackwardCase& problem, Wanted wanted, std::uint64_t seed) {
  const Inputs<T> inputs(problem, seed);
  OnDevice<T> call(problem, inputs);
  const OnDevice<T> before(problem, inputs);
  call.run(problem, wanted);
  if (const std::string damage = call.damage(before); !damage.empty()) return {false, damage};

  const AttentionShape& shape = problem.shape;
  const auto& [q, k, v] = inputs.qkv;
  const TensorView<const T, 4> d_q = call.d_q.view(), d_k = call.d_k.view(), d_v = call.d_v.view();
  if (!problem.sampled) {
    const std::string wrong =
        wrong_gradients<T>(problem, wanted, shape, q.view(), k.view(), v.view(), inputs.d_out.view(), d_q, d_k, d_v);
    return {wrong.empty(), wrong};
  }
  AttentionShape one = shape;
  one.batch = one.heads = 1;
  for (const Index head : sampled_heads(shape)) {
    const Index b = head / shape.heads, h = head % shape.heads;
    const auto of = [&](TensorView<const T, 4> x) { return head_of(x, b, h); };
    const std::string wrong = wrong_gradients<T>(problem, wanted, one, of(q.view()), of(k.view()), of(v.view()),
                                                 of(inputs.d_out.view()), of(d_q), of(d_k), of(d_v));
    if (!wrong.empty()) return {false, "In batch " + std::to_string(b) + ", head " + std::to_string(h) + ": " + wrong};
  }
  return {true, ""};
}

Verdict judge(const BackwardCase& problem, Wanted wanted, std::uint64_t seed) {
  switch (problem.type) {
    case DType::kFloat16: return judge<Half>(problem, wanted, seed);
    case DType::kBFloat16: return judge<BFloat16>(problem, wanted, seed);
    default: return judge<float>(problem, wanted, seed);
  }
}

// ---- delta ----------------------------------------------------------------------------------------------------------------

// From an out that no attention gave: what else is wrong does not matter.
template <class T>
Verdict judge_delta(const Shape<4>& shape, Layout layout, std::uint64_t seed) {
  const Tensor<T, 4> values = normal<T>(shape, seed), upstream = normal<T>(shape, seed + 100);
  BasicPaddedTensor<T, 4> out(values, layout), d_out(upstream, layout);
  BasicPaddedTensor<float, 3> delta({shape[0], shape[1], shape[2]}, layout);
  const DeviceCopy<T, 4> device_out(out), device_d_out(d_out);
  DeviceCopy<float, 3> device_delta(delta);
  flash_backward_delta_cuda<T>(device_out.view(), device_d_out.view(), device_delta.view());
  device::synchronize();
  device_delta.copy_back();
  if (const auto where = delta.written_outside()) return {false, "It writes outside of `delta`: " + *where + "."};
  const std::string wrong = wrong_delta<T>(delta.view(), values.view(), upstream.view());
  return {wrong.empty(), wrong};
}

// ---- The whole pass -------------------------------------------------------------------------------------------------------

// A row whose lse is -inf gives what it would with a d_out of 0.
Verdict judge_rows_without_weights(std::uint64_t seed) {
  const BackwardCase problem{.name = "", .shape = {2, 2, 40, 50, 16}};
  Inputs<float> inputs(problem, seed);
  Tensor<float, 4> counted = inputs.d_out;
  for (Index row = 0; row < inputs.lse.size(); row += 3) {
    inputs.lse.data()[row] = -INFINITY;
    std::fill_n(counted.data() + row * problem.shape.head_dim, problem.shape.head_dim, 0.0f);
  }
  OnDevice<float> call(problem, inputs);
  call.run(problem, Wanted::kAll);
  const auto& [q, k, v] = inputs.qkv;
  const std::string wrong =
      wrong_gradients<float>(problem, Wanted::kAll, problem.shape, q.view(), k.view(), v.view(), std::as_const(counted).view(),
                             call.d_q.view(), call.d_k.view(), call.d_v.view());
  return {wrong.empty(), wrong};
}

// Four blocks of either side: two shares give the same sum in either order, three do not.
Verdict same_bits_again(std::uint64_t seed) {
  const BackwardCase problem{.name = "", .shape = {1, 1, 500, 500, 16}};
  const Inputs<float> inputs(problem, seed);
  OnDevice<float> first(problem, inputs), second(problem, inputs);
  first.run(problem, Wanted::kAll);
  second.run(problem, Wanted::kAll);
  for (const auto& [name, a, b] :
       {std::tuple{"d_q", &first.d_q, &second.d_q}, {"d_k", &first.d_k, &second.d_k}, {"d_v", &first.d_v, &second.d_v}})
    if (!a->same_bits(*b))
      return {false, std::string("Two calls with the same inputs give two results: ") + name + " differs."};
  return judge<float>(problem, Wanted::kAll, seed);
}

// What a call holds beyond its arguments, in bytes.
std::size_t extra_bytes(Index sequence, std::uint64_t seed) {
  const BackwardCase problem{.name = "", .shape = {1, 1, sequence, sequence, 16}};
  return OnDevice<float>(problem, Inputs<float>(problem, seed)).run(problem, Wanted::kAll);
}

Verdict memory_grows_no_faster_than_the_sequence(std::uint64_t seed) {
  const std::size_t few = extra_bytes(192, seed), many = extra_bytes(768, seed);
  const std::string text = std::to_string(few) + " extra bytes for a sequence of 192, " + std::to_string(many) + " for 768";
  if (many > 4 * few + 4096)
    return {false, text + ": the memory grows faster than the sequence. P of one head is " +
                       std::to_string(768 * 768 * sizeof(float)) + "."};
  return {true, text};
}

// Along one random direction the output's product with d_out changes as the gradients say: the adjoint identity, at a length
// where nobody looks at each element.
Verdict gradients_hold_along_a_direction(Index sequence, std::uint64_t seed) {
  const BackwardCase problem{.name = "", .shape = {1, 1, sequence, sequence, 16}, .causal = true};
  const Inputs<float> inputs(problem, seed);
  OnDevice<float> call(problem, inputs);
  call.run(problem, Wanted::kAll);
  const auto& [q, k, v] = inputs.qkv;
  const auto want = attention_backward_oracle(q.view(), k.view(), v.view(), inputs.d_out.view(), problem.options());
  const double bound = attention_backward_bound(
      problem.shape, attention_oracle(q.view(), k.view(), v.view(), problem.options()).largest_score, unit_roundoff<float>());

  struct Input {
    const Tensor<float, 4>& at;
    BasicPaddedTensor<float, 4>& gradient;
    const WithMagnitude& want;
    Tensor<double, 4> direction;
  };
  Input along[] = {{q, call.d_q, want.d_q, normal<double>(q.shape(), 2000 + seed)},
                   {k, call.d_k, want.d_k, normal<double>(k.shape(), 2001 + seed)},
                   {v, call.d_v, want.d_v, normal<double>(v.shape(), 2002 + seed)}};
  const auto product_at = [&](double step) {  // sum(out * d_out), `step` along the direction
    Tensor<double, 4> moved[3];
    for (int which = 0; which < 3; ++which) {
      moved[which] = rounded<double>(along[which].at);
      for (Index i = 0; i < moved[which].size(); ++i) moved[which].data()[i] += step * along[which].direction.data()[i];
    }
    const AttentionOracle oracle = attention_oracle(std::as_const(moved[0]).view(), std::as_const(moved[1]).view(),
                                                    std::as_const(moved[2]).view(), problem.options(), Magnitudes::kLeftOut);
    double sum = 0;
    for (Index i = 0; i < inputs.d_out.size(); ++i)
      sum += oracle.out.value.data()[i] * static_cast<double>(inputs.d_out.data()[i]);
    return sum;
  };
  constexpr double kStep = 1e-5;
  const double change = (product_at(kStep) - product_at(-kStep)) / (2 * kStep);
  // Errors of single elements are at most bound * magnitude; along a random direction they add up as their squares do.
  double said = 0, squares = 0;
  for (Input& input : along) {
    const Tensor<float, 4> got = packed(TensorView<const float, 4>(input.gradient.view()));
    for (Index i = 0; i < got.size(); ++i) {
      said += static_cast<double>(got.data()[i]) * input.direction.data()[i];
      squares += input.want.magnitude.data()[i] * input.want.magnitude.data()[i];
    }
  }
  if (!(std::fabs(change - said) <= bound * std::sqrt(squares)))
    return {false, "Along a random direction the output changes by " + std::to_string(change) + "; the gradients say " +
                       std::to_string(said) + "."};
  return {true, ""};
}

// A kernel on another stream than it was asked for reads what was there before, NaN. q is 0, and lse: all weights are 1.
Verdict judge_stream() {
  const AttentionShape shape{1, 1, 256, 128, 64};
  DeviceTensor<float, 4> q(shape.of_queries()), k(shape.of_keys()), v(shape.of_keys()), out(shape.of_queries()),
      d_out(shape.of_queries()), d_q(shape.of_queries()), d_k(shape.of_keys()), d_v(shape.of_keys());
  DeviceTensor<float, 3> lse(shape.of_rows());
  for (DeviceTensor<float, 4>* tensor : {&q, &k, &v, &out, &d_out, &d_q, &d_k, &d_v})
    device::fill_bytes(tensor->data(), 0xff, tensor->bytes());
  device::fill_bytes(lse.data(), 0xff, lse.bytes());
  const BusyStream stream;
  for (DeviceTensor<float, 4>* tensor : {&k, &v, &d_out}) stream.fill(*tensor, 0x3f);  // each 0x3f3f3f3f, 0.747...
  for (DeviceTensor<float, 4>* tensor : {&q, &out}) stream.fill(*tensor, 0);
  stream.fill(lse, 0);
  const auto read = [](const auto& tensor) { return tensor.view(); };
  flash_attention_backward_cuda<float>(read(q), read(k), read(v), read(out), read(lse), read(d_out), d_q.view(), d_k.view(),
                                       d_v.view(), {}, stream.get());
  device::synchronize();
  // dP is 64 x^2 for each pair, delta 0; the scale is 1/8.
  const double x = std::bit_cast<float>(0x3f3f3f3fu), dP = 64 * x * x;
  for (const auto& [name, gradient, want] :
       {std::tuple{"d_q", &d_q, 128 * dP * x / 8}, {"d_k", &d_k, 0.0}, {"d_v", &d_v, 256 * x}}) {
    const Tensor<float, 4> got = gradient->to_host();
    if (!std::all_of(got.data(), got.data() + got.size(), [&](float value) { return std::fabs(value - want) <= 1e-5 * want; }))
      return {false, std::string(name) + " is wrong: a kernel did not wait for what was enqueued on `stream` before it."};
  }
  return {true, ""};
}

// ---- What only the emulator's checks see ----------------------------------------------------------------------------------

Verdict no_race_and_no_stray_access(std::uint64_t seed) {
  for (const BackwardCase& problem :
       {BackwardCase{.name = "", .shape = {1, 2, 70, 100, 30}, .causal = true},
        BackwardCase{.name = "", .shape = {2, 1, 130, 130, 64}}, BackwardCase{.name = "", .shape = {1, 1, 33, 65, 150}},
        BackwardCase{.name = "", .shape = {1, 1, 70, 70, 64}, .type = DType::kFloat16}})
    if (const Verdict verdict = judge(problem, Wanted::kAll, seed); !verdict.pass) return verdict;
  return {true, ""};
}

// Each pass loads what it owns once, and what it streams once for each of its blocks: with a causal mask from the first query
// that sees a key of the block, or up to the last block of keys that a query of it sees.
Verdict judge_traffic(std::uint64_t seed) {
  const Index own = flash_backward_blocks<float>(64).own, streamed = flash_backward_blocks<float>(64).streamed;
  for (const bool causal : {false, true}) {
    const BackwardCase problem{.name = "", .shape = {1, 2, 2 * own + 22, 2 * own + 42, 64}, .causal = causal};
    const AttentionShape& shape = problem.shape;
    const OnDevice<float> call(problem, Inputs<float>(problem, seed));
    Index queries_read = 0, keys_read = 0;  // by all blocks of one head together
    for (Index j0 = 0; j0 < shape.keys; j0 += own) queries_read += std::max<Index>(shape.queries - (causal ? j0 : 0), 0);
    for (Index i0 = 0; i0 < shape.queries; i0 += own) {
      const Index seen = shape.visible_keys(std::min(i0 + own, shape.queries) - 1, causal);
      keys_read += std::min((seen + streamed - 1) / streamed * streamed, shape.keys);
    }
    const std::size_t heads = shape.batch * shape.heads, row = sizeof(float) * shape.head_dim;
    const std::size_t queries = heads * shape.queries, keys = heads * shape.keys;
    const std::size_t many_queries = heads * queries_read, many_keys = heads * keys_read;

    struct Expected {
      const char* name;
      const void* memory;
      std::size_t loaded, stored;
    };
    const auto check = [&](const std::string& pass, const std::vector<Expected>& expected) -> std::string {
      for (const Expected& tensor : expected) {
        const auto traffic = device::traffic(tensor.memory);
        if (!traffic) return "the emulator did not count";
        const std::string what = " bytes of " + std::string(tensor.name) + (causal ? " with a causal mask" : "") + "; ";
        if (traffic->loaded_bytes > tensor.loaded)
          return pass + " loads " + std::to_string(traffic->loaded_bytes) + what + "at most " + std::to_string(tensor.loaded) +
                 " are needed.";
        if (traffic->stored_bytes != tensor.stored)
          return pass + " stores " + std::to_string(traffic->stored_bytes) + what + "it has to be " +
                 std::to_string(tensor.stored) + ", each element once.";
      }
      return "";
    };
    const auto memory = [](const auto& tensor) { return tensor.memory(); };
    device::reset_traffic();
    call.run_dk_dv(problem);
    device::synchronize();
    std::string wrong = check("The pass for dK and dV", {{"q", memory(call.device_q), many_queries * row, 0},
                                                         {"d_out", memory(call.device_d_out), many_queries * row, 0},
                                                         {"lse", memory(call.device_lse), many_queries * sizeof(float), 0},
                                                         {"delta", memory(call.device_delta), many_queries * sizeof(float), 0},
                                                         {"k", memory(call.device_k), keys * row, 0},
                                                         {"v", memory(call.device_v), keys * row, 0},
                                                         {"d_k", memory(call.device_d_k), 0, keys * row},
                                                         {"d_v", memory(call.device_d_v), 0, keys * row}});
    if (!wrong.empty()) return {false, wrong};
    device::reset_traffic();
    call.run_dq(problem);
    device::synchronize();
    // Each thread reads lse and delta of its own rows, so that lanes that share a row read the same.
    const std::size_t lanes = 32;
    wrong = check("The pass for dQ", {{"q", memory(call.device_q), queries * row, 0},
                                      {"d_out", memory(call.device_d_out), queries * row, 0},
                                      {"lse", memory(call.device_lse), lanes * queries * sizeof(float), 0},
                                      {"delta", memory(call.device_delta), lanes * queries * sizeof(float), 0},
                                      {"k", memory(call.device_k), many_keys * row, 0},
                                      {"v", memory(call.device_v), many_keys * row, 0},
                                      {"d_q", memory(call.device_d_q), 0, queries * row}});
    if (!wrong.empty()) return {false, wrong};
  }
  return {true, ""};
}

}  // namespace

TaskUnderTest task_under_test() {
  TaskUnderTest task{
      .id = "bonus.flash_backward_cuda", .needs_gpu = true, .has_gpu = [] { return device::count() > 0; }, .cases = {}};
  const auto add = [&](const std::string& prefix, const BackwardCase& problem, Wanted wanted) {
    task.cases.push_back({prefix + problem.name, problem.weight,
                          [problem, wanted](std::uint64_t seed) { return judge(problem, wanted, seed); }});
  };
  task.cases.push_back({"delta", 26, [](std::uint64_t seed) {
                          return judge_delta<float>({2, 3, 37, 24}, Layout::kRowMajor, seed);
                        }});
  task.cases.push_back({"delta: strides and wide heads", 13, [](std::uint64_t seed) {
                          return judge_delta<float>({2, 2, 9, 300}, Layout::kSpread, seed);
                        }});
  task.cases.push_back({"delta: half", 7, [](std::uint64_t seed) {
                          return judge_delta<Half>({1, 2, 33, 64}, Layout::kRowMajor, seed);
                        }});
  task.cases.push_back({"delta: bfloat16", 7, [](std::uint64_t seed) {
                          return judge_delta<BFloat16>({1, 2, 33, 64}, Layout::kTransposed, seed);
                        }});
  for (const auto& [prefix, wanted] : {std::pair{"dV: ", Wanted::kDV}, {"dK: ", Wanted::kDK}, {"dQ: ", Wanted::kDQ}})
    for (const BackwardCase& problem : bonus::cases_of_a_gradient()) add(prefix, problem, wanted);
  // dQ would be 0 * inf. Not even a row past the ragged end of the queries may meet a key that holds an inf.
  for (const auto& [prefix, wanted] : {std::pair{"dV: ", Wanted::kDV}, {"dK: ", Wanted::kDK}})
    add(prefix, {.name = "scores of -inf", .shape = {1, 2, 40, 100, 16}, .data = Data::kMinusInfinity}, wanted);
  for (const BackwardCase& problem : bonus::cases_of_all_gradients()) add("", problem, Wanted::kAll);
  task.cases.push_back({"rows whose lse is -inf have no weights", 1, judge_rows_without_weights});
  task.cases.push_back({"the same bits in every run", 1, same_bits_again});
  task.cases.push_back({"memory grows no faster than the sequence", 1, memory_grows_no_faster_than_the_sequence});
  const Index length = device::is_emulated() ? 512 : 8192;
  task.cases.push_back({"along a direction: " + std::to_string(length), 1,
                        [length](std::uint64_t seed) { return gradients_hold_along_a_direction(length, seed); }});
  task.cases.push_back(
      {.name = "checks: no race and no stray access", .weight = 1, .run = no_race_and_no_stray_access, .needs_checks = true});
  task.cases.push_back({.name = "checks: nothing is loaded more often than it must be",
                        .weight = 1,
                        .run = judge_traffic,
                        .needs_checks = true});
  if (device::is_emulated()) return task;
  for (const BackwardCase& problem : bonus::long_cases()) add("", problem, Wanted::kAll);
  task.cases.push_back({"in the order of its stream", 1, [](std::uint64_t) { return judge_stream(); }});
  return task;
}

}  // namespace flash::harness
