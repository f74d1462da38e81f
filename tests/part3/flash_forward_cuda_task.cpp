// Task part3.flash_forward_cuda: out and lse of every problem, what lies around them, the inputs,
// the memory and what is read of it.
#include <algorithm>
#include <optional>
#include <string>

#include "common/cuda/device_tensor.hpp"
#include "harness/cases/device_checks.hpp"
#include "harness/cases/far_apart.hpp"
#include "part3/forward_cases.hpp"
#include "part3/own_mistakes.hpp"
#include "part3_flash_cuda/flash_attention_cuda.hpp"

namespace flash::harness {
namespace {

using Config = std::optional<FlashForwardConfig>;

Verdict judge(AttentionCase problem, std::uint64_t seed, const Config& config = std::nullopt) {
  if (config) problem.blocks.queries = config->block_queries;
  problem.own_mistakes = part3::own_mistakes;
  return with_type(problem.type, [&]<class T>(T) {
    return ForwardCall<T>::judge(problem, seed, [config](ForwardCall<T>& call) {
      flash_attention_forward_cuda(call.tensors.pass(), config);
    });
  });
}

// The first verdict of these that is none of success.
Verdict judge_all(const std::vector<AttentionCase>& problems, std::uint64_t seed,
                  const Config& config = std::nullopt) {
  for (const AttentionCase& problem : problems)
    if (const Verdict verdict = judge(problem, seed, config); !verdict.pass) return verdict;
  return {true, ""};
}

// ---- The steps ----------------------------------------------------------------------------------

// Whole passes whose inputs need the functions up to one only, in the order of the handout. Where
// the scale is 0 all scores are, and load_Q and add_QK are not needed.

std::vector<GradedCase> steps() {
  const auto step = [](const std::string& name, const std::string& function,
                       const std::string& beside, const AttentionCase& problem) {
    return GradedCase{name, "steps", [function, beside, problem](auto seed) {
                        return of_step(function, beside, judge(problem, seed));
                      }};
  };
  const AttentionShape no_keys{1, 1, 128, 0, 64}, one_block{1, 1, 128, 64, 64},
      two_heads{1, 2, 128, 64, 64}, three_blocks{1, 1, 128, 192, 64};
  return {
      step("step 1: the launch and store", "the launch and store", "",
           {.shape = no_keys, .also_solved = AttentionShape{1, 2, 128, 0, 64}}),
      step("step 2: softmax_step", "softmax_step",
           "An lse of -inf: m was not stored, or l is 0. This step is also the first with keys: "
           "l is summed over the row's lanes once, in store, which takes its logarithm in base e.",
           {.shape = one_block, .scale = 0, .lse_only = true, .also_solved = two_heads}),
      step(
          "step 3: add_PV", "add_PV",
          "The key of row n * kLanes + lane of P_smem is place<kKeys, kLanes>(lane, n), with the "
          "lane of the loop; thread.key(n) is a key of this thread. The groups share P (kGroups, "
          "thread.group), the lanes V (kLanes, thread.lane). It is also the first whose "
          "out is not 0: in store out is O / l, and each value goes to its own column. If out is 0 "
          "everywhere: sees is set in masked blocks only, so add_PV asks for it where kMasked is "
          "true.",
          {.shape = one_block, .scale = 0, .also_solved = two_heads}),
      step("step 4: load_Q and add_QK", "load_Q and add_QK",
           "It is also the first with scores that differ: in softmax_step m has to be the same in "
           "all lanes of a row, in add_PV the row of P_smem is n * kLanes + lane, in store m goes "
           "back to base e, and the launch gives the scale in base 2.",
           {.shape = one_block, .also_solved = two_heads}),
      step("step 5: alpha in softmax_step", "alpha, in softmax_step",
           "It is also the first with two blocks of keys: add_PV has to add to what is in O.",
           {.shape = {1, 1, 128, 128, 64}, .also_solved = three_blocks}),
      step(
          "step 6: mask_scores", "mask_scores",
          "It is also the first with blocks that are not full: the launch rounds the number of "
          "blocks up, store skips queries that do not exist, a row may have no key of a block, and "
          "in add_PV a masked key adds nothing: compare the key, and not the row of P_smem, with "
          "sees[r].",
          {.shape = {1, 1, 150, 150, 64}, .causal = true})};
}

// Every configuration that has room, on a problem that is ragged for all of them; the contract's
// are among them.
template <class T>
Verdict judge_configurations(std::uint64_t seed) {
  const bool all_have_room = device::shared_memory_per_block() >= kFlashRoomForConfigs;
  for (const Index head_dim : {32, 64, 128, 256}) {
    const auto configs = flash_attention_forward_configs<T>(head_dim);
    for (const FlashForwardConfig& config : kFlashForwardConfigs)
      if (all_have_room && config.head_dim == head_dim &&
          std::find(configs.begin(), configs.end(), config) == configs.end())
        return {false, "flash_attention_forward_configs(" + std::to_string(head_dim) + ") lacks " +
                           to_string(config) +
                           ", one of the contract's kFlashForwardConfigs: return what "
                           "configs_for() gives."};
    for (const FlashForwardConfig& config : configs) {
      const AttentionCase problem{
          .shape = {1, 1, config.block_queries + 5, 2 * config.block_keys + 3, head_dim - 3},
          .causal = true,
          .type = dtype_of<T>()};
      if (const Verdict verdict = judge(problem, seed, config); !verdict.pass)
        return {false, "With " + to_string(config) + ": " + verdict.text, verdict.diagnose};
      ForwardCall<T> call(problem, seed);
      const std::string wrong =
          wrong_launch(to_string(config), 2, static_cast<std::size_t>(32 * config.warps),
                       [&] { flash_attention_forward_cuda(call.tensors.pass(), config); });
      if (!wrong.empty()) return {false, wrong};
    }
  }
  return {true, ""};
}

// A configuration for narrower heads takes a head in slices.
Verdict judge_slices(std::uint64_t seed) {
  const AttentionShape shape{1, 2, 70, 70, 150};
  return judge_all({{.shape = shape}, {.shape = shape, .causal = true}}, seed,
                   flash_attention_forward_configs<float>(64).back());
}

Verdict no_extra_memory(std::uint64_t seed) {
  const AttentionCase problem{.shape = {1, 1, 64, 2100, 16}};
  ForwardCall<float> call(problem, seed);
  const std::size_t extra_bytes = extra_device_bytes([&] {
    // All that is written there is allocated: below.
    despite_races([&] { flash_attention_forward_cuda(call.tensors.pass()); }, kMany);
  });
  if (extra_bytes > 0)
    return {
        false,
        "It had " + std::to_string(extra_bytes) +
            " extra bytes of device memory in use; the kernel needs none, and all of S would be " +
            std::to_string(sizeof(float) * 64 * 2100) + "."};
  return call.verdict();
}

Verdict same_bits_again(std::uint64_t seed) {
  return gives_the_same_bits<ForwardCall<float>>(
      AttentionCase{.shape = {1, 2, 100, 200, 64}, .causal = true}, seed,
      [](ForwardCall<float>& call) { flash_attention_forward_cuda(call.tensors.pass()); });
}

Verdict no_race_and_no_stray_access(std::uint64_t seed) {
  return judge_all({{.shape = {1, 2, 70, 100, 30}, .causal = true},
                    {.shape = {2, 1, 130, 130, 64}},
                    {.shape = {1, 1, 33, 65, 300}},
                    {.shape = {1, 1, 20, 20, 64}, .shift = 1},
                    {.shape = {1, 1, 70, 70, 64}, .type = DType::kFloat16, .shift = 1}},
                   seed);
}

// What a fused kernel has to move, and nothing else: q once, k and v once for each block of queries
// (with a causal mask the blocks of keys that one of its queries sees), out and lse stored once.
// Only the emulator's checks can count it.
Verdict judge_traffic(std::uint64_t seed, const FlashForwardConfig& config) {
  for (const bool causal : {false, true}) {
    const bool is_plain = is_plain_call(seed, causal);
    const AttentionShape shape =
        is_plain ? AttentionShape{1, 1, 2 * config.block_queries + 22, 170, 64}
                 : AttentionShape{1, 3, config.block_queries + 5, config.block_keys + 3, 24};
    ForwardCall<float> call({.shape = shape,
                             .causal = causal,
                             .layout = is_plain ? Layout::kRowMajor : Layout::kSpread},
                            seed);
    device::reset_traffic(false);
    despite_races([&] { flash_attention_forward_cuda(call.tensors.pass(), config); });
    if (const Verdict verdict = call.verdict(); !verdict.pass) return of_results(is_plain, verdict);

    Index keys_seen = 0;  // by all blocks of queries together
    for (Index i0 = 0; i0 < shape.queries; i0 += config.block_queries) {
      const Index seen =
          shape.visible_keys(std::min(i0 + config.block_queries, shape.queries) - 1, causal);
      keys_seen += std::min((seen + config.block_keys - 1) / config.block_keys * config.block_keys,
                            shape.keys);
    }
    const std::size_t row = sizeof(float) * shape.head_dim, heads = shape.batch * shape.heads;
    const std::size_t q_bytes = heads * shape.queries * row, kv_bytes = heads * keys_seen * row;
    const std::string blocks = causal ? "the blocks with a key that some query of the block sees"
                                      : "all of it once for each block of queries";
    const std::string outputs = "sums belong in registers";
    auto& [q, k, v, out, lse, options, filled] = call.tensors;
    // A block of queries may leave keys of its last block out, which the mask hides from it.
    const std::size_t least = causal ? 0 : kv_bytes;
    const std::string wrong = wrong_traffic(
        "With " + to_string(config) + " it", causal,
        {{"q", q.memory(), q_bytes, 0, "each element once"},
         {"k", k.memory(), kv_bytes, 0, blocks, false, least},
         {"v", v.memory(), kv_bytes, 0, blocks, false, least},
         {"out", out.memory(), 0, q_bytes, outputs},
         {"lse", lse.memory(), 0, sizeof(float) * heads * shape.queries, outputs, true}},
        heads * static_cast<std::size_t>((shape.queries + config.block_queries - 1) /
                                         config.block_queries));
    if (!wrong.empty()) return {false, wrong};
  }
  return {true, ""};
}

// Whole blocks, of tensors whose rows begin at a sector.
Verdict judge_accesses(std::uint64_t seed, const std::string& of) {
  const FlashForwardConfig config = flash_attention_forward_configs<float>(64).back();
  const AttentionShape shape{1, 1, 2 * config.block_queries, 2 * config.block_keys, 64};
  ForwardCall<float> call({.shape = shape}, seed);
  device::reset_traffic();
  despite_races([&] { flash_attention_forward_cuda(call.tensors.pass(), config); });
  if (const Verdict verdict = call.verdict(); !verdict.pass) return verdict;
  if (of == kSharedWork)
    return verdict_on(wrong_work("It", static_cast<std::size_t>(32 * config.warps)));
  if (of == kFewConflicts) return verdict_on(wrong_conflicts("It"));
  const std::size_t row = sizeof(float) * shape.head_dim, q_bytes = row * shape.queries;
  auto& [q, k, v, out, lse, options, filled] = call.tensors;
  return verdict_on(wrong_coalescing("It", {{"q", q.memory(), q_bytes, 0},
                                            {"k", k.memory(), 2 * row * shape.keys, 0},
                                            {"v", v.memory(), 2 * row * shape.keys, 0}}));
}

}  // namespace

TaskUnderTest flash_forward_cuda_task() {
  TaskUnderTest task{.id = "part3.flash_forward_cuda", .is_cuda = true};
  const auto add = [&](const std::vector<AttentionCase>& problems, Needs needs) {
    for (const AttentionCase& problem : problems) {
      const std::string exact = problem.requirement();
      const bool shapes =
          exact.ends_with("blocks") || exact.ends_with("ends") || exact == "strides";
      const std::string requirement = shapes ? "shapes and strides" : exact;
      task.add(problem.name, requirement, needs,
               [problem](auto seed) { return judge(problem, seed); });
    }
  };
  task.cases = steps();
  add(part3::forward_cases(), Needs::kNothing);
  task.add("every configuration: float", "shapes and strides", judge_configurations<float>);
  task.add("every configuration: half", "scale and types", judge_configurations<Half>);
  task.add("every configuration: bfloat16", "scale and types", judge_configurations<BFloat16>);
  task.add(kOtherNumbersName, "shapes and strides", [](auto seed) {
    return with_other_numbers(seed, [](auto of) {
      return judge({.shape = {1, 1, 32, 32, 16}}, of);
    });
  });
  task.add("a head in slices", "shapes and strides", judge_slices);
  // Without the checks a kernel could have memory of the host.
  task.add("no extra memory: 64 x 2100", "memory", Needs::kChecks, no_extra_memory);
  task.add("the same bits in every run", "order and races", same_bits_again);
  task.add("checks: no race and no stray access", "order and races", Needs::kChecks,
           no_race_and_no_stray_access);
  task.add("checks: nothing is loaded more often than it must be", "memory", Needs::kChecks,
           [](auto seed) {
             Verdict verdict{true, ""};
             for (const auto& config : flash_attention_forward_configs<float>(64))
               if (verdict.pass) verdict = judge_traffic(seed++, config);
             return verdict;
           });
  for (const std::string name : {kCoalesced, kFewConflicts, kSharedWork})
    task.add(name, "access patterns", Needs::kChecks,
             [name](auto seed) { return judge_accesses(seed, name); });
  task.add(kFarApartName, "shapes and strides", Needs::kSparseMemory, [](auto seed) {
    return forward_far_apart(
        seed, [](const AttentionForward<float>& pass) { flash_attention_forward_cuda(pass); });
  });
  add_cases_of_its_stream<ForwardCall<float>>(
      task, "order and races", AttentionCase{.shape = {1, 1, 40, 40, 16}},
      AttentionCase{.shape = {1, 1, 256, 256, 64}},
      [](const auto& pass) { flash_attention_forward_cuda(pass); });
  task.add(kManyHeadsName, "shapes and strides", Needs::kEmulator, [](auto seed) {
    return launches_many([seed](const AttentionShape& shape) {
      const ForwardCall<float> call({.shape = shape}, seed);
      flash_attention_forward_cuda(call.tensors.pass());
    });
  });
  add({{.name = "66000 keys", .shape = {1, 1, 1, 66000, 2}},
       {.name = "33000 queries", .shape = {1, 1, 33000, 2, 2}}},
      Needs::kNoChecks);
  add(part3::long_cases(), Needs::kGpu);
  task.add(
      "half: batches 2147483648 elements apart", "shapes and strides", Needs::kGpu, [](auto seed) {
        return forward_far_apart<Half>(
            seed, [](const AttentionForward<Half>& pass) { flash_attention_forward_cuda(pass); });
      });
  return task;
}

}  // namespace flash::harness
