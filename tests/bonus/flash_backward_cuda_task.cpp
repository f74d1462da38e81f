// Task bonus.flash_backward_cuda: delta, each gradient by itself from the oracle's lse and delta,
// and the whole backward pass. Of the sum of the weights delta has an eighth, each gradient a
// quarter, and masks, ragged ends and all the rest an eighth: half a point, 1, and half a point of
// 4.
#include <algorithm>
#include <string>

#include "bonus/backward_cases.hpp"
#include "bonus_backward/flash_backward_cuda.hpp"
#include "common/cuda/device_tensor.hpp"
#include "harness/cases/device_checks.hpp"
#include "harness/cases/far_apart.hpp"
#include "harness/cases/own_passes.hpp"

namespace flash::harness {
namespace {

// One gradient comes from the function that computes it, all of them from the whole pass.
template <class T>
void run(const BackwardCall<T>& call, Wanted wanted) {
  switch (wanted) {
    case Wanted::kDV:
    case Wanted::kDK: return flash_backward_dk_dv_cuda(call.tensors.pass(), call.delta.in_call());
    case Wanted::kDQ: return flash_backward_dq_cuda(call.tensors.pass(), call.delta.in_call());
    case Wanted::kAll: return flash_attention_backward_cuda(call.tensors.pass());
  }
}

Verdict judge(AttentionCase problem, Wanted wanted, std::uint64_t seed) {
  return with_type(problem.type, [&]<class T>(T) {
    problem.blocks.queries = flash_backward_blocks<T>(problem.shape.head_dim).own;
    return BackwardCall<T>::judge(problem, seed, wanted,
                                  [wanted](BackwardCall<T>& call) { run(call, wanted); });
  });
}

// ---- delta --------------------------------------------------------------------------------------

// From an out that no attention gave: what else is wrong does not matter.
template <class T>
Verdict judge_delta(const Shape<4>& shape, Layout layout, std::uint64_t seed) {
  const Tensor<T, 4> values = normal<T>(shape, seed), upstream = normal<T>(shape, seed + 100);
  PassTensor<T, 4, DeviceCopy> out("out", values, layout), d_out("d_out", upstream, layout);
  PassTensor<float, 3, DeviceCopy> delta("delta", Shape<3>{shape[0], shape[1], shape[2]}, layout);
  flash_backward_delta_cuda<T>(out.in_call(), d_out.in_call(), delta.in_call());
  delta.copy_back();
  if (const std::string damage = delta.damage(); !damage.empty()) return {false, damage};
  const std::string wrong = wrong_delta<T>(delta.view(), values.view(), upstream.view());
  return verdict_on(wrong);
}

// ---- The whole pass -----------------------------------------------------------------------------

// Four blocks of either side: two shares give the same sum in either order, three do not.
Verdict same_bits_again(std::uint64_t seed) {
  return gives_the_same_bits<BackwardCall<float>>(
      AttentionCase{.shape = {1, 1, 270, 270, 16}}, seed,
      [](BackwardCall<float>& call) { run(call, Wanted::kAll); });
}

Verdict memory_grows_no_faster_than_the_sequence(std::uint64_t seed) {
  const auto extra_bytes = [&](Index sequence) {
    BackwardCall<float> call({.shape = {1, 1, sequence, sequence, 16}}, seed);
    const std::size_t bytes =
        extra_device_bytes([&] { despite_races([&] { run(call, Wanted::kAll); }, kMany); });
    // A call that does nothing has no memory.
    return std::pair{bytes, call.verdict()};
  };
  const auto [few, first] = extra_bytes(64);
  const auto [many, second] = extra_bytes(256);
  if (!first.pass || !second.pass) return first.pass ? second : first;
  // A row or a column of P that local variables cannot hold.
  const bool of_dq = seed % 2 == 0;
  const Verdict with_many = BackwardCall<float>::judge(
      {.shape = of_dq ? AttentionShape{1, 1, 8, 2100, 16} : AttentionShape{1, 1, 2100, 8, 16}},
      seed, of_dq ? Wanted::kDQ : Wanted::kDK, [of_dq](BackwardCall<float>& call) {
        const Wanted wanted = of_dq ? Wanted::kDQ : Wanted::kDK;
        extra_device_bytes([&] { despite_races([&] { run(call, wanted); }, kMany); });
      });
  if (!with_many.pass) return with_many;
  // delta, and less than one other element for each query or key.
  return grows_no_faster(64, few, many, 256 * sizeof(float) + 1024, "P of one head is");
}

// ---- What only the emulator's checks see --------------------------------------------------------

Verdict no_race_and_no_stray_access(std::uint64_t seed) {
  for (const AttentionCase& problem :
       {AttentionCase{.shape = {1, 2, 70, 100, 30}, .causal = true},
        AttentionCase{.shape = {1, 1, 70, 130, 64}}, AttentionCase{.shape = {1, 1, 33, 65, 150}},
        AttentionCase{.shape = {1, 1, 20, 20, 64}, .shift = 1},
        AttentionCase{.shape = {1, 1, 70, 70, 64}, .type = DType::kFloat16, .shift = 1}})
    if (const Verdict verdict = judge(problem, Wanted::kAll, seed); !verdict.pass) return verdict;
  return {true, ""};
}

// Each pass loads what it owns once, and what it streams once for each of its blocks: with a causal
// mask from the first query that sees a key of the block, or up to the last block of keys that a
// query of it sees.
Verdict judge_traffic(std::uint64_t seed) {
  for (const auto& [head_dim, least] : {std::pair{64, 64}, {256, 16}})
    if (const auto [own, streamed] = flash_backward_blocks<float>(head_dim); own < least)
      return {false, "flash_backward_blocks(" + std::to_string(head_dim) + ") owns " +
                         std::to_string(own) + " rows; the contract asks for at least " +
                         std::to_string(least) + ". Take the block from Compiled<T>."};
  constexpr Index kHeadDim = 256;  // the smallest blocks: 5 times as fast as 64
  const auto [own, streamed] = flash_backward_blocks<float>(kHeadDim);
  for (const bool causal : {false, true}) {
    const AttentionShape shape{1, 2, 2 * own + 22, 2 * own + 42, kHeadDim};
    const bool is_plain = is_plain_call(seed, causal);
    BackwardCall<float> call({.shape = shape,
                              .causal = causal,
                              .layout = is_plain ? Layout::kRowMajor : Layout::kSpread},
                             seed);
    Index queries_read = 0, keys_read = 0;  // by all blocks of one head together
    for (Index j0 = 0; j0 < shape.keys; j0 += own)
      queries_read += std::max<Index>(shape.queries - (causal ? j0 : 0), 0);
    for (Index i0 = 0; i0 < shape.queries; i0 += own) {
      const Index seen = shape.visible_keys(std::min(i0 + own, shape.queries) - 1, causal);
      keys_read += std::min((seen + streamed - 1) / streamed * streamed, shape.keys);
    }
    const std::size_t heads = shape.batch * shape.heads, number = sizeof(float),
                      row = number * shape.head_dim;
    const std::size_t queries = heads * shape.queries, keys = heads * shape.keys;
    const auto blocks = [&](Index rows) { return heads * ((rows + own - 1) / own); };
    const std::size_t many_queries = heads * queries_read, many_keys = heads * keys_read;
    const auto& t = call.tensors;
    device::reset_traffic(false);
    despite_races([&] { run(call, Wanted::kDK); });
    for (const Wanted wanted : {Wanted::kDK, Wanted::kDV})
      if (const Verdict verdict = call.verdict(wanted); !verdict.pass)
        return of_results(is_plain, verdict);
    std::string wrong = wrong_traffic("The pass for dK and dV", causal,
                                      {{"q", t.q.memory(), many_queries * row, 0},
                                       {"d_out", t.d_out.memory(), many_queries * row, 0},
                                       {"lse", t.lse.memory(), many_queries * number, 0},
                                       {"delta", call.delta.memory(), many_queries * number, 0},
                                       {"k", t.k.memory(), keys * row, 0},
                                       {"v", t.v.memory(), keys * row, 0},
                                       {"d_k", t.d_k.memory(), 0, keys * row},
                                       {"d_v", t.d_v.memory(), 0, keys * row}},
                                      blocks(shape.keys));
    if (!wrong.empty()) return {false, wrong};
    device::reset_traffic(false);
    despite_races([&] { run(call, Wanted::kDQ); });
    if (const Verdict verdict = call.verdict(Wanted::kDQ); !verdict.pass)
      return of_results(is_plain, verdict);
    // Each thread reads lse and delta of its own rows, so that lanes that share a row read the
    // same.
    const std::size_t lanes = 32;
    wrong = wrong_traffic("The pass for dQ", causal,
                          {{"q", t.q.memory(), queries * row, 0},
                           {"d_out", t.d_out.memory(), queries * row, 0},
                           {"lse", t.lse.memory(), lanes * queries * number, 0},
                           {"delta", call.delta.memory(), lanes * queries * number, 0},
                           {"k", t.k.memory(), many_keys * row, 0},
                           {"v", t.v.memory(), many_keys * row, 0},
                           {"d_q", t.d_q.memory(), 0, queries * row}},
                          blocks(shape.queries));
    if (!wrong.empty()) return {false, wrong};
  }
  return {true, ""};
}

// One block of own rows, of tensors whose rows begin at a sector: each is loaded once.
Verdict judge_accesses(std::uint64_t seed, const std::string& of) {
  constexpr Index kHeadDim = 64;
  const Index rows = flash_backward_blocks<float>(kHeadDim).own;
  BackwardCall<float> call({.shape = {1, 1, rows, rows, kHeadDim}}, seed);
  const auto& t = call.tensors;
  const std::size_t once = sizeof(float) * kHeadDim * rows;
  for (const Wanted wanted : {Wanted::kDK, Wanted::kDQ}) {
    const std::string what = wanted == Wanted::kDK ? "The pass for dK and dV" : "The pass for dQ";
    device::reset_traffic();
    despite_races([&] { run(call, wanted); });
    for (const Wanted made : {wanted, wanted == Wanted::kDK ? Wanted::kDV : wanted})
      if (const Verdict verdict = call.verdict(made); !verdict.pass) return verdict;
    const std::string wrong = of == kSharedWork ? wrong_work(what, 128)
                              : of == kFewConflicts
                                  ? wrong_conflicts(what)
                                  : wrong_coalescing(what, {{"q", t.q.memory(), once, 0},
                                                            {"d_out", t.d_out.memory(), once, 0},
                                                            {"k", t.k.memory(), once, 0},
                                                            {"v", t.v.memory(), once, 0}});
    if (!wrong.empty()) return {false, wrong};
  }
  return {true, ""};
}

}  // namespace

TaskUnderTest flash_backward_cuda_task() {
  const char *const kOrder = "order and races", *const kMemory = "memory";
  TaskUnderTest task{.id = "bonus.flash_backward_cuda", .is_cuda = true};
  const auto add = [&](const std::string& prefix, const AttentionCase& problem, Wanted wanted,
                       Needs needs = Needs::kNothing) {
    const std::string requirement = prefix.empty() ? "whole pass" : prefix.substr(0, 2);
    task.add(prefix + problem.name, requirement, needs,
             [problem, wanted](auto seed) { return judge(problem, wanted, seed); });
  };
  task.add("delta", "delta", [](auto seed) {
    return judge_delta<float>({2, 3, 37, 24}, Layout::kRowMajor, seed);
  });
  task.add("delta: strides and wide heads", "delta", [](auto seed) {
    return judge_delta<float>({2, 2, 9, 300}, Layout::kSpread, seed);
  });
  task.add("delta: half", "delta", [](auto seed) {
    return judge_delta<Half>({1, 2, 33, 64}, Layout::kRowMajor, seed);
  });
  task.add("delta: bfloat16", "delta", [](auto seed) {
    return judge_delta<BFloat16>({1, 2, 33, 64}, Layout::kTransposed, seed);
  });
  for (const auto& [prefix, wanted] :
       {std::pair{"dV: ", Wanted::kDV}, {"dK: ", Wanted::kDK}, {"dQ: ", Wanted::kDQ}})
    for (const AttentionCase& problem : bonus::cases_of_a_gradient()) add(prefix, problem, wanted);
  // dQ would be 0 * inf. Not even a row past the ragged end of the queries may meet a key that
  // holds an inf.
  for (const auto& [prefix, wanted] : {std::pair{"dV: ", Wanted::kDV}, {"dK: ", Wanted::kDK}})
    add(prefix,
        {.name = "scores of -inf", .shape = {1, 2, 40, 100, 16}, .data = Data::kMinusInfinity},
        wanted);
  for (const AttentionCase& problem : bonus::cases_of_all_gradients())
    add("", problem, Wanted::kAll);
  task.add(kOtherNumbersName, "whole pass", [](auto seed) {
    return with_other_numbers(seed, [](auto of) {
      return judge({.shape = {1, 1, 32, 32, 16}}, Wanted::kAll, of);
    });
  });
  task.add("the same bits in every run", kOrder, same_bits_again);
  task.add("memory grows no faster than the sequence", kMemory, Needs::kChecks,
           memory_grows_no_faster_than_the_sequence);
  for (const auto& [length, needs] : {std::pair{512, Needs::kEmulator}, {8192, Needs::kGpu}})
    add("",
        {.name = "causal: length " + std::to_string(length),
         .shape = {1, 1, length, length, 16},
         .causal = true},
        Wanted::kAll, needs);
  task.add("checks: no race and no stray access", kOrder, Needs::kChecks,
           no_race_and_no_stray_access);
  task.add("checks: nothing is loaded more often than it must be", kMemory, Needs::kChecks,
           judge_traffic);
  for (const std::string name : {kCoalesced, kFewConflicts, kSharedWork})
    task.add(name, "access patterns", Needs::kChecks,
             [name](auto seed) { return judge_accesses(seed, name); });
  task.add(kFarApartName, "whole pass", Needs::kSparseMemory, [](auto seed) {
    return backward_far_apart(
        seed, [](const AttentionBackward<float>& pass) { flash_attention_backward_cuda(pass); });
  });
#ifdef FLASH_HAVE_PART3
  add_cases_of_own_passes<DeviceCopy>(task, {.forward_task = "3.A",
                                             .forward = [](const auto& pass) { own_forward(pass); },
                                             .backward = flash_attention_backward_cuda<float>,
                                             .bytes_in_use = device::memory_in_use});
#endif
  add_cases_of_its_stream<BackwardCall<float>>(
      task, kOrder, AttentionCase{.shape = {1, 1, 40, 40, 16}},
      AttentionCase{.shape = {1, 1, 256, 128, 64}},
      [](const auto& pass) { flash_attention_backward_cuda(pass); });
  task.add(kManyHeadsName, "whole pass", Needs::kEmulator, [](auto seed) {
    return launches_many([seed](const AttentionShape& shape) {
      const BackwardCall<float> call({.shape = shape}, seed);
      flash_attention_backward_cuda(call.tensors.pass());
    });
  });
  add("dQ: ", {.name = "33000 keys", .shape = {1, 1, 1, 33000, 2}}, Wanted::kDQ, Needs::kNoChecks);
  add("dK: ", {.name = "33000 queries", .shape = {1, 1, 33000, 2, 2}}, Wanted::kDK,
      Needs::kNoChecks);
  for (const AttentionCase& problem : bonus::long_cases())
    add("", problem, Wanted::kAll, Needs::kGpu);
  return task;
}

}  // namespace flash::harness
