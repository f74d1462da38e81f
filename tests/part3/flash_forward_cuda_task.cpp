// Task part3.flash_forward_cuda: out and lse of every problem, what lies around them, the inputs, the memory and what is read
// of it.
#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "common/cuda/device_tensor.hpp"
#include "harness/attention_data.hpp"
#include "harness/busy_stream.hpp"
#include "harness/device_copy.hpp"
#include "harness/graded_case.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"

namespace flash::harness {
namespace {

enum class Type { kFloat, kHalf, kBFloat16 };

struct ForwardCase {
  std::string name;
  AttentionShape shape;
  bool causal = false;
  Data data = Data::kNormal;
  Type type = Type::kFloat;
  Layout layout = Layout::kRowMajor;
  std::optional<double> scale = std::nullopt;
  Index shift = 0;  // of the tensors' first element behind an aligned address, in elements
  int weight = 1;
  bool sampled = false;  // only the first, a middle and the last head are compared with the oracle
  std::optional<Tolerance> tolerance = std::nullopt;

  AttentionOptions options() const { return {.causal = causal, .scale = scale}; }
};

std::vector<ForwardCase> forward_cases() {
  std::vector<ForwardCase> cases{
      // Of float a thread block takes 128 queries and 64 keys at a time, where head_dim is at most 64 and shared memory allows.
      {.name = "one block: 128 x 64", .shape = {1, 1, 128, 64, 64}},
      {.name = "two blocks of keys: 128 x 128", .shape = {1, 1, 128, 128, 64}},
      {.name = "one query and one key", .shape = {1, 1, 1, 1, 8}},
      {.name = "one query and many keys", .shape = {1, 2, 1, 300, 16}},
      {.name = "fewer queries than keys", .shape = {1, 2, 33, 170, 16}},
      {.name = "more queries than keys", .shape = {1, 2, 170, 33, 16}},
      {.name = "no keys", .shape = {1, 2, 5, 0, 8}},
      {.name = "batches and heads: 3 x 5", .shape = {3, 5, 20, 30, 16}, .weight = 2},
      {.name = "head_dim 1", .shape = {2, 1, 17, 17, 1}},
      {.name = "head_dim 40", .shape = {1, 2, 65, 100, 40}, .weight = 2},
      {.name = "head_dim 128", .shape = {1, 1, 65, 100, 128}, .weight = 2},
      {.name = "head_dim 256", .shape = {1, 1, 65, 100, 256}, .weight = 2},
      {.name = "head_dim 512", .shape = {1, 1, 33, 65, 512}},
      {.name = "head_dim 1000", .shape = {1, 1, 5, 40, 1000}},
      {.name = "causal: fewer queries than keys", .shape = {1, 2, 33, 170, 16}, .causal = true},
      {.name = "causal: more queries than keys", .shape = {1, 2, 170, 33, 16}, .causal = true},
      {.name = "causal: head_dim 128", .shape = {1, 1, 100, 100, 128}, .causal = true},
      {.name = "causal: head_dim 256", .shape = {1, 1, 65, 65, 256}, .causal = true},
      {.name = "causal: head_dim 512", .shape = {1, 1, 65, 65, 512}, .causal = true},
      {.name = "a scale of its own", .shape = {1, 2, 40, 40, 16}, .scale = 0.3},
      {.name = "a negative scale", .shape = {1, 1, 20, 20, 16}, .scale = -0.5},
      // What only an online softmax with a true running maximum survives.
      {.name = "large scores", .shape = {1, 2, 64, 200, 64}, .data = Data::kLargeScores, .weight = 2},
      {.name = "rising scores: a new maximum in each block", .shape = {1, 2, 40, 300, 16}, .data = Data::kRising, .weight = 2},
      {.name = "very negative scores", .shape = {1, 1, 40, 200, 16}, .data = Data::kVeryNegative},
      {.name = "equal scores", .shape = {1, 1, 33, 147, 16}, .data = Data::kEqual},
      {.name = "one key a query", .shape = {1, 1, 40, 200, 64}, .data = Data::kOneHot},
      {.name = "values that show which keys were counted", .shape = {1, 2, 50, 183, 32}, .data = Data::kSignature, .weight = 2},
      {.name = "values that show which keys were counted (causal)",
       .shape = {1, 2, 183, 183, 32},
       .causal = true,
       .data = Data::kSignature,
       .weight = 2},
      {.name = "scores of -inf and rows of nothing else", .shape = {1, 2, 40, 200, 16}, .data = Data::kMinusInfinity},
      {.name = "NaN reaches the rows that see it", .shape = {2, 2, 140, 140, 8}, .causal = true, .data = Data::kNaN},
      {.name = "strides: padded rows", .shape = {2, 2, 20, 83, 16}, .layout = Layout::kPaddedRows},
      {.name = "strides: transposed", .shape = {2, 2, 20, 83, 16}, .layout = Layout::kTransposed},
      {.name = "strides: spread out", .shape = {2, 2, 20, 83, 16}, .layout = Layout::kSpread},
      {.name = "strides: interleaved heads", .shape = {2, 3, 70, 70, 16}, .causal = true, .layout = Layout::kInterleavedHeads},
      {.name = "tensors that are not aligned", .shape = {1, 2, 70, 70, 64}, .shift = 1},
  };
  for (const Index sequence : {63, 64, 65, 100, 257})
    for (const bool causal : {false, true})
      cases.push_back({.name = (causal ? "causal: sequence " : "sequence ") + std::to_string(sequence),
                       .shape = {1, 1, sequence, sequence, 64},
                       .causal = causal,
                       .weight = causal ? 2 : 1});
  for (const Type type : {Type::kHalf, Type::kBFloat16}) {
    const std::string name = type == Type::kHalf ? "half: " : "bfloat16: ";
    cases.push_back({.name = name + "100", .shape = {2, 2, 100, 100, 40}, .type = type, .weight = 2});
    cases.push_back({.name = name + "causal: 200", .shape = {1, 2, 200, 200, 64}, .causal = true, .type = type, .weight = 2});
    cases.push_back({.name = name + "causal (ragged and strided)",
                     .shape = {1, 2, 70, 33, 16},
                     .causal = true,
                     .type = type,
                     .layout = Layout::kSpread});
    cases.push_back({.name = name + "head_dim 128", .shape = {1, 1, 65, 100, 128}, .type = type});
    cases.push_back({.name = name + "head_dim 256", .shape = {1, 1, 33, 65, 256}, .causal = true, .type = type});
    cases.push_back({.name = name + "head_dim 512", .shape = {1, 1, 33, 65, 512}, .type = type});
    cases.push_back({.name = name + "large scores", .shape = {1, 1, 64, 200, 64}, .data = Data::kLargeScores, .type = type});
    cases.push_back({.name = name + "one key a query", .shape = {1, 1, 40, 200, 64}, .data = Data::kOneHot, .type = type});
    cases.push_back({.name = name + "NaN reaches the rows that see it",
                     .shape = {1, 1, 70, 70, 8},
                     .causal = true,
                     .data = Data::kNaN,
                     .type = type});
    cases.push_back({.name = name + "tensors that are not aligned", .shape = {1, 1, 70, 70, 64}, .type = type, .shift = 1});
  }
  return cases;
}

// What Half loses below its least normal number, 2^-14: up to 2^-25 of each weight and of the result, as a part of the
// magnitude.
void add_underflow(WithMagnitude& out, TensorView<const Half, 4> v, const AttentionShape& shape, bool causal, double bound) {
  const auto& [batch, heads, queries, keys, head_dim] = shape;
  for (Index b = 0; b < batch; ++b)
    for (Index h = 0; h < heads; ++h)
      for (Index c = 0; c < head_dim; ++c) {
        double sizes = 0;
        for (Index i = 0, j = 0; i < queries; ++i) {
          for (; j < shape.visible_keys(i, causal); ++j) sizes += std::fabs(static_cast<double>(v(b, h, j, c)));
          out.magnitude(b, h, i, c) += 0x1p-25 * (1 + sizes) / bound;
        }
      }
}

// The device's tensors of a problem, and one call.
template <class T>
struct OnDevice {
  BasicPaddedTensor<T, 4> q, k, v, out;
  BasicPaddedTensor<float, 3> lse;
  DeviceCopy<T, 4> device_q, device_k, device_v, device_out;
  DeviceCopy<float, 3> device_lse;

  OnDevice(const ForwardCase& problem, const AttentionInputs<T>& inputs)
      : q(inputs.q, problem.layout),
        k(inputs.k, problem.layout),
        v(inputs.v, problem.layout),
        out(problem.shape.of_queries(), problem.layout),
        lse(problem.shape.of_rows(), Layout::kRowMajor),
        device_q(q, problem.shift),
        device_k(k, problem.shift),
        device_v(v, problem.shift),
        device_out(out, problem.shift),
        device_lse(lse, problem.shift) {}

  // Returns the most device memory that the call had beyond its arguments, in bytes.
  std::size_t run(const ForwardCase& problem, const std::optional<FlashForwardConfig>& config) {
    const std::size_t before = device::memory_in_use();
    device::reset_peak_memory();
    flash_attention_forward_cuda<T>(device_q.view(), device_k.view(), device_v.view(), device_out.view(), device_lse.view(),
                                    problem.options(), config);
    device::synchronize();
    const std::size_t extra_bytes = device::peak_memory() - before;
    device_q.copy_back();
    device_k.copy_back();
    device_v.copy_back();
    device_out.copy_back();
    device_lse.copy_back();
    return extra_bytes;
  }
};

// out and lse beside the oracle's.
template <class T>
std::string wrong_outputs(const ForwardCase& problem, const AttentionShape& shape, TensorView<const T, 4> q,
                          TensorView<const T, 4> k, TensorView<const T, 4> v, TensorView<const T, 4> out,
                          TensorView<const float, 3> lse, Index block) {
  AttentionOracle oracle = attention_oracle(q, k, v, problem.options());
  const double bound = attention_output_bound<T>(shape, oracle.largest_score);
  if constexpr (std::is_same_v<T, Half>) add_underflow(oracle.out, v, shape, problem.causal, bound);
  if (const std::string wrong = wrong_in<T>(out, oracle.out, bound, "query", block, problem.tolerance); !wrong.empty())
    return wrong;
  // lse is a float32 sum of weights that were not rounded, whatever T is.
  return wrong_lse<float>(lse, oracle.lse, attention_bound(shape, oracle.largest_score, unit_roundoff<float>()), block);
}

template <class T>
Verdict judge(const ForwardCase& problem, std::uint64_t seed, const std::optional<FlashForwardConfig>& config) {
  const auto inputs = make_inputs<T>(problem.shape, problem.data, seed);
  OnDevice<T> call(problem, inputs);
  const auto q_before = call.q, k_before = call.k, v_before = call.v;
  call.run(problem, config);

  if (const auto where = call.out.written_outside()) return {false, "It writes outside of `out`: " + *where + "."};
  if (const auto where = call.lse.written_outside()) return {false, "It writes outside of `lse`: " + *where + "."};
  for (const auto& [name, before, after] :
       {std::tuple{"q", &q_before, &call.q}, {"k", &k_before, &call.k}, {"v", &v_before, &call.v}})
    if (!after->same_bits(*before)) return {false, std::string("It changes `") + name + "`. Inputs must stay as they are."};

  const Index block = config ? config->block_queries : 0;
  if (!problem.sampled) {
    const std::string wrong = wrong_outputs<T>(problem, problem.shape, inputs.q.view(), inputs.k.view(), inputs.v.view(),
                                               call.out.view(), call.lse.view(), block);
    return {wrong.empty(), wrong};
  }
  const Index heads = problem.shape.heads, all = problem.shape.batch * heads;
  AttentionShape one = problem.shape;
  one.batch = one.heads = 1;
  for (const Index head : {Index{0}, all / 2, all - 1}) {
    const Index b = head / heads, h = head % heads;
    const std::string wrong = wrong_outputs<T>(problem, one, head_of(inputs.q.view(), b, h), head_of(inputs.k.view(), b, h),
                                               head_of(inputs.v.view(), b, h), head_of<T, 4>(call.out.view(), b, h),
                                               head_of<float, 3>(call.lse.view(), b, h), block);
    if (!wrong.empty()) return {false, "In batch " + std::to_string(b) + ", head " + std::to_string(h) + ": " + wrong};
  }
  return {true, ""};
}

Verdict judge(const ForwardCase& problem, std::uint64_t seed, const std::optional<FlashForwardConfig>& config = std::nullopt) {
  switch (problem.type) {
    case Type::kFloat: return judge<float>(problem, seed, config);
    case Type::kHalf: return judge<Half>(problem, seed, config);
    case Type::kBFloat16: return judge<BFloat16>(problem, seed, config);
  }
  return {};
}

// Every configuration for heads of `head_dim` that has room, on a problem that is ragged for all of them.
template <class T>
Verdict judge_configurations(Type type, std::uint64_t seed) {
  for (const Index head_dim : {32, 64, 128, 256})
    for (const FlashForwardConfig& config : flash_attention_forward_configs<T>(head_dim)) {
      const ForwardCase problem{.name = "",
                                .shape = {1, 1, config.block_queries + 5, 2 * config.block_keys + 3, head_dim - 3},
                                .causal = true,
                                .type = type};
      if (const Verdict verdict = judge(problem, seed, config); !verdict.pass)
        return {false, "With " + to_string(config) + ": " + verdict.text};
    }
  return {true, ""};
}

// A configuration for narrower heads takes a head in slices.
Verdict judge_slices(std::uint64_t seed) {
  for (const bool causal : {false, true}) {
    const ForwardCase problem{.name = "", .shape = {1, 2, 70, 70, 150}, .causal = causal};
    const std::optional<FlashForwardConfig> config = flash_attention_forward_configs<float>(64).back();
    if (const Verdict verdict = judge(problem, seed, config); !verdict.pass) return verdict;
  }
  return {true, ""};
}

Verdict no_extra_memory(std::uint64_t seed) {
  const ForwardCase problem{.name = "", .shape = {1, 1, 512, 1024, 16}};
  OnDevice<float> call(problem, make_inputs<float>(problem.shape, problem.data, seed));
  const std::size_t extra_bytes = call.run(problem, std::nullopt);
  if (extra_bytes > 0)
    return {false, "It had " + std::to_string(extra_bytes) +
                       " extra bytes of device memory in use; the kernel needs none, and all of S would be " +
                       std::to_string(sizeof(float) * 512 * 1024) + "."};
  return judge(problem, seed);
}

Verdict same_bits_again(std::uint64_t seed) {
  const ForwardCase problem{.name = "", .shape = {1, 2, 100, 200, 64}, .causal = true};
  const auto inputs = make_inputs<float>(problem.shape, problem.data, seed);
  OnDevice<float> first(problem, inputs), second(problem, inputs);
  first.run(problem, std::nullopt);
  second.run(problem, std::nullopt);
  if (!first.out.same_bits(second.out)) return {false, "Two calls with the same inputs give two results: out differs."};
  if (!first.lse.same_bits(second.lse)) return {false, "Two calls with the same inputs give two results: lse differs."};
  return judge(problem, seed);
}

Verdict no_race_and_no_stray_access(std::uint64_t seed) {
  for (const ForwardCase& problem :
       {ForwardCase{.name = "", .shape = {1, 2, 70, 100, 30}, .causal = true},
        ForwardCase{.name = "", .shape = {2, 1, 130, 130, 64}}, ForwardCase{.name = "", .shape = {1, 1, 33, 65, 300}},
        ForwardCase{.name = "", .shape = {1, 1, 70, 70, 64}, .type = Type::kHalf}})
    if (const Verdict verdict = judge(problem, seed); !verdict.pass) return verdict;
  return {true, ""};
}

std::string bytes_text(const std::string& what, std::size_t got, const std::string& relation, std::size_t want,
                       const std::string& formula) {
  return what + ": " + std::to_string(got) + " bytes; it has to be " + relation + std::to_string(want) + ", " + formula + ".";
}

// What a fused kernel has to move, and nothing else: q once, k and v once for each block of queries (with a causal mask the
// blocks of keys that one of its queries sees), out and lse stored once. Only the emulator's checks can count it.
Verdict judge_traffic(std::uint64_t seed) {
  const FlashForwardConfig config = flash_attention_forward_configs<float>(64).back();
  for (const bool causal : {false, true}) {
    const ForwardCase problem{.name = "", .shape = {1, 2, 150, 170, 64}, .causal = causal};
    OnDevice<float> call(problem, make_inputs<float>(problem.shape, problem.data, seed));
    device::reset_traffic();
    call.run(problem, config);

    const AttentionShape& shape = problem.shape;
    Index keys_seen = 0;  // by all blocks of queries together
    for (Index i0 = 0; i0 < shape.queries; i0 += config.block_queries) {
      const Index seen = shape.visible_keys(std::min(i0 + config.block_queries, shape.queries) - 1, causal);
      keys_seen += std::min((seen + config.block_keys - 1) / config.block_keys * config.block_keys, shape.keys);
    }
    const std::size_t row = sizeof(float) * shape.head_dim, heads = shape.batch * shape.heads;
    const std::size_t q_bytes = heads * shape.queries * row, kv_bytes = heads * keys_seen * row;
    const std::string when = causal ? " with a causal mask" : "";
    const std::string formula =
        causal ? "the blocks with a key that some query of the block sees" : "all of it once for each block of queries";
    struct {
      const char* name;
      const void* memory;
      std::size_t loaded, stored;
      std::string formula;
    } const expected[] = {{"q", call.device_q.memory(), q_bytes, 0, "each element once"},
                          {"k", call.device_k.memory(), kv_bytes, 0, formula},
                          {"v", call.device_v.memory(), kv_bytes, 0, formula},
                          {"out", call.device_out.memory(), 0, q_bytes, "each element once"},
                          {"lse", call.device_lse.memory(), 0, sizeof(float) * heads * shape.queries, "each element once"}};
    for (const auto& tensor : expected) {
      const auto traffic = device::traffic(tensor.memory);
      if (!traffic) return {false, "the emulator did not count"};
      if (traffic->loaded_bytes > tensor.loaded)
        return {false, bytes_text(std::string("It loads too much of ") + tensor.name + when, traffic->loaded_bytes,
                                  tensor.loaded > 0 ? "at most " : "", tensor.loaded,
                                  tensor.loaded > 0 ? tensor.formula : "since sums belong in registers")};
      if (traffic->stored_bytes != tensor.stored)
        return {false,
                bytes_text(
                    std::string("It stores to ") + tensor.name + (tensor.stored > 0 ? " more, or less, than once" : "") + when,
                    traffic->stored_bytes, "", tensor.stored, tensor.stored > 0 ? tensor.formula : "since it is an input")};
    }
  }
  return {true, ""};
}

// A kernel on another stream than it was asked for reads what was there before, NaN.
Verdict judge_stream() {
  const AttentionShape shape{1, 1, 256, 256, 64};
  DeviceTensor<float, 4> q(shape.of_queries()), k(shape.of_keys()), v(shape.of_keys()), out(shape.of_queries());
  DeviceTensor<float, 3> lse(shape.of_rows());
  for (DeviceTensor<float, 4>* tensor : {&q, &k, &v, &out}) device::fill_bytes(tensor->data(), 0xff, tensor->bytes());
  const BusyStream stream;
  stream.fill(q, 0);
  stream.fill(k, 0);
  stream.fill(v, 0x3f);  // each 0x3f3f3f3f, 0.747...
  flash_attention_forward_cuda<float>(std::as_const(q).view(), std::as_const(k).view(), std::as_const(v).view(), out.view(),
                                      lse.view(), {}, std::nullopt, stream.get());
  device::synchronize();
  const Tensor<float, 4> got = out.to_host();
  const float want = std::bit_cast<float>(0x3f3f3f3fu);
  const bool right = std::all_of(got.data(), got.data() + got.size(), [&](float x) { return std::fabs(x - want) <= 1e-5f; });
  return {right, right ? "" : "The kernel did not wait for what was enqueued on `stream` before it."};
}

// Two batches of one tensor, whose first elements are 2^31 apart: a product of 32 bits does not find the second.
constexpr Index kApart = Index{1} << 31;
constexpr std::size_t kFarApartBytes = sizeof(Half) * (kApart + (1 << 22));

Verdict judge_far_apart(std::uint64_t seed) {
  const AttentionShape shape{2, 1, 100, 100, 64};
  const auto inputs = make_inputs<Half>(shape, Data::kNormal, seed);
  DeviceTensor<Half, 1> memory({static_cast<Index>(kFarApartBytes / sizeof(Half))});
  DeviceTensor<float, 3> lse(shape.of_rows());
  const Index size = 100 * 64;
  const auto view_of = [&](Index number) {
    return TensorView<Half, 4>(memory.data() + number * size, shape.of_queries(), {kApart, size, 64, 1});
  };
  Index number = 0;
  for (const Tensor<Half, 4>* x : {&inputs.q, &inputs.k, &inputs.v}) {
    for (const Index b : {0, 1})
      device::copy_to_device(&view_of(number)(b, 0, 0, 0), x->data() + b * size, sizeof(Half) * size);
    ++number;
  }
  const TensorView<Half, 4> q = view_of(0), k = view_of(1), v = view_of(2), out = view_of(3);
  for (const Index b : {0, 1}) device::fill_bytes(&out(b, 0, 0, 0), 0xff, sizeof(Half) * size);
  flash_attention_forward_cuda<Half>(q, k, v, out, lse.view(), {});
  device::synchronize();
  Tensor<Half, 4> got(shape.of_queries());
  for (const Index b : {0, 1}) device::copy_to_host(got.data() + b * size, &out(b, 0, 0, 0), sizeof(Half) * size);
  const Tensor<float, 3> got_lse = lse.to_host();
  const ForwardCase problem{.name = "", .shape = shape, .type = Type::kHalf};
  const std::string wrong = wrong_outputs<Half>(problem, shape, inputs.q.view(), inputs.k.view(), inputs.v.view(),
                                                std::as_const(got).view(), got_lse.view(), 0);
  return {wrong.empty(), wrong};
}

}  // namespace

TaskUnderTest task_under_test() {
  TaskUnderTest task{
      .id = "part3.flash_forward_cuda", .needs_gpu = true, .has_gpu = [] { return device::count() > 0; }, .cases = {}};
  for (const ForwardCase& problem : forward_cases())
    task.cases.push_back({problem.name, problem.weight, [problem](std::uint64_t seed) { return judge(problem, seed); }});
  task.cases.push_back(
      {"every configuration: float", 3, [](std::uint64_t seed) { return judge_configurations<float>(Type::kFloat, seed); }});
  task.cases.push_back(
      {"every configuration: half", 1, [](std::uint64_t seed) { return judge_configurations<Half>(Type::kHalf, seed); }});
  task.cases.push_back({"every configuration: bfloat16", 1,
                        [](std::uint64_t seed) { return judge_configurations<BFloat16>(Type::kBFloat16, seed); }});
  task.cases.push_back({"a head in slices", 1, judge_slices});
  task.cases.push_back({"no extra memory: 512 x 1024", 4, no_extra_memory});
  task.cases.push_back({"the same bits in every run", 2, same_bits_again});
  task.cases.push_back(
      {.name = "checks: no race and no stray access", .weight = 4, .run = no_race_and_no_stray_access, .needs_checks = true});
  task.cases.push_back({.name = "checks: nothing is loaded more often than it must be",
                        .weight = 4,
                        .run = judge_traffic,
                        .needs_checks = true});
  // For GPUs only, since the emulator takes too long: more heads than a grid is tall or deep (65535), sequences of many blocks,
  // and the problems that the course's sources try their kernels on, at their tolerance beside ours.
  if (device::is_emulated()) return task;
  const Tolerance of_sources{1e-2, 0};
  for (const ForwardCase& problem :
       {ForwardCase{.name = "more heads than a grid is tall: 65600 x 1 x 3", .shape = {65600, 1, 1, 3, 2}},
        ForwardCase{.name = "long: 2 x 3000 x 3000", .shape = {1, 2, 3000, 3000, 64}, .causal = true},
        ForwardCase{.name = "half: long: 2 x 3000 x 3000", .shape = {1, 2, 3000, 3000, 64}, .type = Type::kHalf},
        ForwardCase{.name = "half: causal: a head of 1024 columns: 2 x 1 x 1024",
        .shape = {2, 1, 1024, 1024, 1024},
        .causal = true,
        .data = Data::kHalfNormal,
        .type = Type::kHalf,
        .tolerance = of_sources},
        ForwardCase{.name = "half: 8 x 8 x 2048",
        .shape = {8, 8, 2048, 2048, 64},
        .data = Data::kHalfNormal,
        .type = Type::kHalf,
        .sampled = true,
        .tolerance = of_sources},
        ForwardCase{.name = "half: causal: 8 x 8 x 2048",
        .shape = {8, 8, 2048, 2048, 64},
        .causal = true,
        .data = Data::kHalfNormal,
        .type = Type::kHalf,
        .sampled = true,
        .tolerance = of_sources},
        ForwardCase{.name = "bfloat16: causal: 2 x 8 x 2048",
        .shape = {2, 8, 2048, 2048, 64},
        .causal = true,
        .type = Type::kBFloat16,
        .sampled = true}})
    task.cases.push_back({problem.name, problem.weight, [problem](std::uint64_t seed) { return judge(problem, seed); }});
  task.cases.push_back({"in the order of its stream", 1, [](std::uint64_t) { return judge_stream(); }});
  if (device::count() > 0 && device::memory_info().free_bytes > kFarApartBytes + (std::size_t{1} << 28))
    task.cases.push_back({"half: batches 2147483648 elements apart", 1, judge_far_apart});
  return task;
}

}  // namespace flash::harness
