// Task decode.flash_decode_cuda: results, what the kernels load and store, the same bits in any
// batch, and how many parts there are.
#include <algorithm>
#include <numeric>

#include "bonus_decode/flash_decode.hpp"
#include "decode/decode_cases.hpp"
#include "harness/cases/busy_stream.hpp"
#include "harness/cases/device_checks.hpp"
#include "harness/cases/far_apart.hpp"

namespace flash::harness {
namespace {

using decode_cases::DecodeCall;
using decode_cases::DecodeCase;

Verdict judge(const DecodeCase& problem, std::uint64_t seed) {
  return with_type(problem.type, [&]<class T>(T) {
    const auto run = [](DecodeCall<T>& call) { flash_decode_cuda(call.pass()); };
    DecodeCall<T> call(problem, seed);
    run(call);
    return call.verdict(run);
  });
}

// The sequences of a batch one by one, and in a batch with a wider table: each has its bits.
Verdict same_bits_in_any_batch(std::uint64_t seed) {
  const DecodeCase problem{.lengths = {700, 90, 270, 0}, .group = 2, .kv_heads = 1};
  DecodeCall<float> together(problem, seed);
  flash_decode_cuda(together.pass());
  if (Verdict verdict = together.verdict(); !verdict.pass) return verdict;
  const auto batch = static_cast<Index>(problem.lengths.size());
  for (Index b = 0; b < batch; ++b) {
    DecodeCase alone = problem;
    alone.lengths = {problem.lengths[b]};
    alone.table_pages = 70 - 5 * b;
    DecodeCall<float> call(alone, seed + 31 * b);  // gets the keys that it had in the batch
    flash_decode_cuda(call.pass());
    if (Verdict verdict = call.verdict(); !verdict.pass) return verdict;
    const float* const here = &call.out.view()(0, 0, 0, 0);
    if (!std::equal(here, here + problem.heads() * problem.head_dim,
                    &together.out.view()(b, 0, 0, 0)))
      return {false, "A sequence of " + std::to_string(problem.lengths[b]) +
                         " keys gives other bits alone than in a batch. Its parts may depend on "
                         "its own length alone."};
  }
  return {true, ""};
}

// What a call moves: wrong(call, what it has to load of k and v, keys of the batch). Kernels write
// the parts: out, the maximum and the sum. A row has 64 at most, of whole pages.
template <class Wrong>
Verdict judge_counted(const DecodeCase& problem, std::uint64_t seed, bool counts_warps, Wrong wrong,
                      std::size_t* extra_bytes = nullptr) {
  DecodeCall<float> call(problem, seed);
  const auto& lengths = problem.lengths;
  const int pages = *std::max_element(lengths.begin(), lengths.end()) / 16 + 1;
  const auto values = static_cast<std::size_t>(call.inputs.q.size()),
             rows = values / static_cast<std::size_t>(problem.head_dim);
  const auto run = [&] {
    despite_races([&] { flash_decode_cuda(call.pass()); },
                  std::min(64, pages) * sizeof(float) * (values + 2 * rows) + 1024);
  };
  device::reset_traffic(counts_warps);
  extra_bytes ? void(*extra_bytes = extra_device_bytes(run)) : run();
  if (const Verdict verdict = call.verdict(); !verdict.pass) return verdict;
  const std::size_t cache = sizeof(float) * problem.kv_heads * problem.head_dim *
                            std::accumulate(lengths.begin(), lengths.end(), std::size_t{0});
  const std::string once = "each key of a sequence once for all heads of its group";
  return verdict_on(
      wrong(call, std::vector<ExpectedTraffic>{{"k", call.k.memory(), cache, 0, once},
                                               {"v", call.v.memory(), cache, 0, once}}));
}

// A part for each thread block: where a sequence of 16400 keys is one part, the card is idle. Its
// scores take four times the memory of 64 parts.
Verdict as_many_parts_as_there_have_to_be(std::uint64_t seed) {
  const DecodeCase problem{.lengths = {16400}, .kv_heads = 1};
  const std::size_t part = sizeof(float) * (problem.head_dim + 1);  // out and lse
  std::size_t bytes = 0;
  const auto wrong = [&](auto&, const auto& loads) {
    if (bytes > 65 * part + 1024)
      return "It takes " + std::to_string(bytes) +
             " bytes of device memory for a sequence of 16400 keys; 64 parts take " +
             std::to_string(64 * part) + ", and more are too many.";
    if (std::string work = wrong_work("It", 256); !work.empty()) return work;
    // 8 parts of whole pages: the largest has less than a seventh.
    return wrong_traffic("It", false, loads, 14);
  };
  return judge_counted(problem, seed, false, wrong, &bytes);
}

// Each key and value once for its whole group, and nothing behind a length.
Verdict judge_traffic(std::uint64_t seed) {
  const auto wrong = [](auto& call, auto moves) {
    const std::size_t out = sizeof(float) * call.inputs.q.size(), lse = out / call.problem.head_dim;
    const std::string own = "the parts have a place of their own";
    moves.push_back({"out", call.out.memory(), 0, out, own});
    moves.push_back({"lse", call.lse.memory(), 0, lse, own, true});
    return wrong_traffic("It", false, moves, 1);
  };
  for (const DecodeCase& problem :
       {DecodeCase{.lengths = {600, 0, 17}, .group = 2},
        DecodeCase{.lengths = {90}, .group = 8, .kv_heads = 1, .queries = 2, .head_dim = 128}})
    if (Verdict verdict = judge_counted(problem, seed, false, wrong); !verdict.pass) return verdict;
  return {true, ""};
}

Verdict judge_accesses(std::uint64_t seed, const std::string& of) {
  const DecodeCase problem{.lengths = {512}, .kv_heads = 1};
  return judge_counted(problem, seed, true, [&of](auto&, const auto& loads) {
    return of == kSharedWork     ? wrong_work("It", 256)
           : of == kFewConflicts ? wrong_conflicts("It")
                                 : wrong_coalescing("It", loads);
  });
}

Verdict no_race_and_no_stray_access(std::uint64_t seed) {
  for (const DecodeCase& problem :
       {DecodeCase{.lengths = {530, 15, 0}, .group = 2, .queries = 2},
        DecodeCase{
            .lengths = {70}, .group = 8, .kv_heads = 1, .queries = 2, .head_dim = 128, .shift = 1},
        DecodeCase{.lengths = {70}, .head_dim = 256, .type = DType::kFloat16}})
    if (const Verdict verdict = judge(problem, seed); !verdict.pass) return verdict;
  return {true, ""};
}

// Two sequences of one page each, and the pages, 2^31 elements apart.
Verdict judge_far_apart(std::uint64_t seed) {
  return with_far_apart([seed](FarApart& memory) {
    const Shape<4> cache{2, 16, 1, 64}, rows{2, 1, 1, 64};
    const auto q = normal<float>(rows, seed), k = normal<float>(cache, seed + 1),
               v = normal<float>(cache, seed + 2);
    Tensor<std::int32_t, 2> table({2, 1});
    Tensor<std::int32_t, 1> lengths({2});
    table(0, 0) = 1, lengths(0) = 16, lengths(1) = 11;
    const DeviceTensor<std::int32_t, 2> table_there(table);
    const DeviceTensor<std::int32_t, 1> lengths_there(lengths);
    const TensorView<const float, 4> q_there = memory.tensor(q), k_there = memory.tensor(k),
                                     v_there = memory.tensor(v);
    const auto out = memory.tensor<float, 4>(rows);
    const auto lse = memory.tensor<float, 3>({2, 1, 1});  // last: what follows is not aligned
    flash_decode_cuda<float>(
        {q_there, k_there, v_there, table_there.view(), lengths_there.view(), out, lse});
    const Decode<float> pass{q.view(), k.view(), v.view(), table.view(), lengths.view(), out, lse};
    const std::string wrong = DecodeCall<float>::wrong(pass, 0);
    return wrong.empty() ? DecodeCall<float>::wrong(pass, 1) : wrong;
  });
}

// More sequences than a grid is tall: of these the launches alone are checked.
Verdict launches_many_sequences(std::uint64_t seed) {
  const DecodeCall<float> call({.lengths = std::vector<std::int32_t>(65600, 0), .kv_heads = 1},
                               seed);
  skip_next_kernels();
  flash_decode_cuda(call.pass());
  return device::host_calls().value_or(device::HostCalls{}).blocks > 0 ? Verdict{true, ""}
                                                                       : launches_nothing();
}

}  // namespace

TaskUnderTest flash_decode_cuda_task() {
  using namespace decode_cases;
  const char* const kOrder = "order and races";
  TaskUnderTest task{.id = "decode.flash_decode_cuda", .is_cuda = true};
  const auto add = [&](const std::string& requirement, const std::vector<DecodeCase>& problems,
                       Needs needs = Needs::kNothing) {
    for (const DecodeCase& problem : problems)
      task.add(problem.name, requirement, needs,
               [problem](auto seed) { return judge(problem, seed); });
  };
  for (const auto& [requirement, problems] : cases()) add(requirement, problems);
  task.add(kOtherNumbersName, "pages", [](auto seed) {
    return with_other_numbers(seed, [](auto of) { return judge({.lengths = {40}}, of); });
  });
  task.add("the same bits in any batch", "many parts", same_bits_in_any_batch);
  task.add("the same bits in every run", kOrder, [](auto seed) {
    return gives_the_same_bits<DecodeCall<float>>(
        DecodeCase{.lengths = {600, 90}, .group = 2, .kv_heads = 1}, seed,
        [](auto& call) { flash_decode_cuda(call.pass()); });
  });
  task.add("as many parts as there have to be", "memory", Needs::kChecks,
           as_many_parts_as_there_have_to_be);
  task.add("checks: each key is loaded once", "memory", Needs::kChecks, judge_traffic);
  task.add("checks: no race and no stray access", kOrder, Needs::kChecks,
           no_race_and_no_stray_access);
  for (const std::string name : {kCoalesced, kFewConflicts, kSharedWork})
    task.add(name, "access patterns", Needs::kChecks,
             [name](auto seed) { return judge_accesses(seed, name); });
  add_cases_of_its_stream<DecodeCall<float>>(task, kOrder, DecodeCase{},
                                             DecodeCase{.lengths = {600, 300}},
                                             [](const auto& pass) { flash_decode_cuda(pass); });
  task.add("65600 sequences", "pages", Needs::kEmulator, launches_many_sequences);
  task.add(kFarApartName, "pages", Needs::kSparseMemory, judge_far_apart);
  add("pages",
      {{.name = "33000 keys in pages of 1", .lengths = {33000}, .kv_heads = 1, .page_size = 1}},
      Needs::kNoChecks);
  add("many parts", long_cases(), Needs::kGpu);
  return task;
}

}  // namespace flash::harness
