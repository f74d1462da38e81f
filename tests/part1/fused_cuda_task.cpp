// Task part1.fused_cuda: the cases of task 1.A on the CUDA function.
#include "common/cuda/device_tensor.hpp"
#include "harness/cases/device_checks.hpp"
#include "part1/softmax_matmul_cases.hpp"

namespace flash::part1 {
namespace {

// A call under the checks.
struct CheckedCall {
  SoftmaxMatmulShape shape;
  PaddedTensor x, v, out;
  harness::DeviceCopy<float, 3> device_x, device_v, device_out;

  CheckedCall(const SoftmaxMatmulShape& of, std::uint64_t seed, Layout layout = kRowMajor)
      : shape(of),
        x(make_input<3>(shape.of_x(), kNormal, 2 * seed), layout),
        v(make_input<3>(shape.of_v(), kNormal, 2 * seed + 1), layout),
        out(shape.of_out(), layout),
        device_x(x),
        device_v(v),
        device_out(out) {}

  void run(const SoftmaxMatmulBlocks& blocks, std::size_t most_elsewhere = 0) {
    harness::despite_races(
        [&] {
          fused_softmax_matmul_cuda({device_x.view(), device_v.view(), device_out.view()}, blocks);
        },
        most_elsewhere);
  }
  std::string wrong() {
    device_out.copy_back();
    return wrong_product<float>(out.view(), x.view(), v.view(), softmax_matmul_bound(shape.d2, 6),
                                "row", 0);
  }
};

// Without the checks a kernel could have memory of the host.
Verdict judge_memory(std::uint64_t seed) {
  CheckedCall call({1, 32, 2100, 4}, seed);
  const std::size_t extra_bytes =
      harness::extra_device_bytes([&] { call.run({}, harness::kMany); });
  if (extra_bytes > 0)
    return {false, "It had " + std::to_string(extra_bytes) +
                       " extra bytes in use at once; the kernel needs none, and all of softmax(X) "
                       "would be " +
                       std::to_string(sizeof(float) * 32 * 2100) + "."};
  return harness::verdict_on(call.wrong());
}

// The handout's formula: what a fused kernel has to move, and nothing else. Only the emulator's
// checks can count it.
Verdict judge_traffic(std::uint64_t seed, const SoftmaxMatmulBlocks& blocks) {
  const bool is_plain = harness::is_plain_call(seed, blocks.block_1 == 16);
  CheckedCall call(
      is_plain ? SoftmaxMatmulShape{1, 70, 100, 300} : SoftmaxMatmulShape{3, 70, 40, 140}, seed,
      is_plain ? kRowMajor : kSpread);
  const SoftmaxMatmulShape& shape = call.shape;
  device::reset_traffic(false);
  call.run(blocks);

  const auto bytes_of = [](const Shape<3>& of) { return sizeof(float) * element_count(of); };
  const auto times = [](Index n, Index block) { return (n + block - 1) / block; };
  std::string wrong = call.wrong();
  if (!wrong.empty()) return harness::of_results(is_plain, {false, wrong});
  const std::size_t v_bytes = bytes_of(shape.of_v()) * times(shape.d1, blocks.block_1);
  wrong = harness::wrong_traffic(
      "With block_1 = " + std::to_string(blocks.block_1) + " it", false,
      {{"x", call.device_x.memory(), bytes_of(shape.of_x()) * times(shape.d3, kFusedChunk), 0,
        "all of x once for each chunk of columns"},
       {"v", call.device_v.memory(), v_bytes, 0, "all of v once for each block of rows", false,
        v_bytes},
       {"out", call.device_out.memory(), 0, bytes_of(shape.of_out()), "sums belong in registers"}},
      static_cast<std::size_t>(shape.batch * times(shape.d1, blocks.block_1) *
                               times(shape.d3, kFusedChunk)));
  return harness::verdict_on(wrong);
}

// Whole blocks of tensors that begin at a sector. Of x each lane takes every fourth key of its row:
// half of a sector in one request.
std::string wrong_accesses(std::uint64_t seed, bool of_shared_memory) {
  const SoftmaxMatmulShape shape{1, 64, 64, kFusedChunk};
  const auto x_host = make_input<3>(shape.of_x(), kNormal, 2 * seed),
             v_host = make_input<3>(shape.of_v(), kNormal, 2 * seed + 1);
  const DeviceTensor<float, 3> x(x_host), v(v_host), out(shape.of_out());
  device::reset_traffic();
  harness::despite_races([&] {
    fused_softmax_matmul_cuda({x.view(), v.view(), out.view()}, {32, 32});
  });
  device::synchronize();
  if (const std::string wrong =
          wrong_product<float>(out.to_host().view(), x_host.view(), v_host.view(),
                               softmax_matmul_bound(shape.d2, 6), "row", 0);
      !wrong.empty())
    return wrong;
  if (of_shared_memory) return harness::wrong_conflicts("It");
  return harness::wrong_coalescing(
      "It", {{"x", x.data(), x.bytes(), 0}, {"v", v.data(), 2 * v.bytes(), 0}});
}

// A lane that reads its 8 weights and its 8 values of a key 16 bytes at a time makes 4 reads for 64
// multiply-adds. With 8 bytes at a time for the values alone it makes 6. What else reads shared
// memory may have two fifths of the 4.
Verdict judge_reads(std::uint64_t seed) {
  CheckedCall call({1, 64, 128, kFusedChunk}, seed);
  const SoftmaxMatmulShape& shape = call.shape;
  device::reset_traffic(false);
  call.run({32, 32});
  if (const std::string wrong = call.wrong(); !wrong.empty()) return {false, wrong};
  const std::size_t products = shape.d1 * shape.d2 * shape.d3, most = products / 16 * 7 / 5;
  const std::size_t reads = device::shared_accesses().value_or(device::SharedAccesses{}).reads;
  const std::size_t least = products / 64;  // of 32 x 32 results in the registers of a lane
  return harness::verdict_on(
      reads < least ? "It reads shared memory " + std::to_string(reads) + " times for " +
                          std::to_string(products) +
                          " multiply-adds; a product of tiles in shared memory "
                          "makes at least " +
                          std::to_string(least) + "."
      : reads <= most
          ? ""
          : "It reads shared memory " + std::to_string(reads) + " times for " +
                std::to_string(products) +
                " multiply-adds. With 16 bytes in each read (float4) 4 reads feed 64 of them. So " +
                std::to_string(products / 16) + " reads are enough for the product, and " +
                std::to_string(most) + " are allowed for the whole kernel.");
}

// Whole passes whose inputs need some of the marked regions only, in the order of the handout.
void add_steps(TaskUnderTest& task, const RunFused& run) {
  struct Step {
    const char* name;
    const char* beside;
    SoftmaxMatmulCase problem;
  };
  const std::vector<Step> all{
      {"the launch and store", "", {"", {1, 32, 0, kFusedChunk}}},
      {"the weights and the product",
       "All scores are equal here, and so are all values. So every weight is 1, l is the number of "
       "keys, and out is that value whatever the order of keys and columns.",
       {"", {1, 32, 32, kFusedChunk}, {32, 32}, kAllEqual, kAllEqual}},
      {"values and columns",
       "The scores are still equal, so look also at O += P V and at store: which column each value "
       "belongs to.",
       {"", {1, 32, 32, kFusedChunk}, {32, 32}, kAllEqual}},
      {"the scores and the maximum",
       "It is also the first with scores that differ, so look at the weights too: "
       "P_smem[key][row].",
       {"", {1, 32, 32, kFusedChunk}, {32, 32}, kLargeLogits}},
      {"alpha",
       "It is also the first with two blocks of keys, so look at the barriers too, and at both l "
       "and o.",
       {"", {1, 32, 64, kFusedChunk}, {32, 32}, kRising}},
      {"ragged ends",
       "It is also the first with several blocks of rows, and with rows, keys and columns that do "
       "not exist.",
       {"", {2, 40, 50, 300}, {32, 32}}}};
  for (Step step : all) {
    SoftmaxMatmulCase& problem = step.problem;
    problem.on_device = true;
    if (problem.shape.batch == 1) {  // one block; where alpha is 1 or known, one tile more
      problem.also_solved = problem.shape;
      if (problem.shape.d2 > 32 || problem.x == kAllEqual) problem.also_solved->d2 += 32;
    }
    task.add("step " + std::to_string(task.cases.size() + 1) + ": " + step.name, "steps",
             [=](auto seed) {
               return harness::of_step(step.name, step.beside, judge(step.problem, seed, run));
             });
  }
}

}  // namespace
}  // namespace flash::part1

namespace flash::harness {

TaskUnderTest fused_cuda_task() {
  using namespace part1;
  const RunFused run = on_device(fused_softmax_matmul_cuda);
  TaskUnderTest task{.id = "part1.fused_cuda", .is_cuda = true};
  add_steps(task, run);
  add_softmax_matmul_cases(task, run, true);
  const auto no_race = [run](auto seed) {
    for (const SoftmaxMatmulCase& problem :
         {SoftmaxMatmulCase{"", {2, 33, 47, 300}},
          {"", {1, 70, 100, 40}, {64, 32}},
          {"", {1, 20, 130, 9}, {16, 64}},
          {.shape = {2, 9, 12, 8}, .blocks = {16, 16}, .shift = 1}})
      if (const Verdict verdict = judge(problem, seed, run); !verdict.pass) return verdict;
    return Verdict{true, ""};
  };
  task.add("checks: no race and no stray access", "order and races", Needs::kChecks, no_race);
  task.add("no quadratic memory: 1 x 32 x 2100 x 4", "memory", Needs::kChecks, judge_memory);
  task.add("checks: x and v are loaded no more often than they must be", "memory", Needs::kChecks,
           [](auto seed) {
             const Verdict small = judge_traffic(seed, {16, 16});
             return small.pass ? judge_traffic(seed, {64, 16}) : small;
           });
  task.add("checks: the product reads 16 bytes at a time", "access patterns", Needs::kChecks,
           judge_reads);
  // The same call as judge_reads() makes: what passes that one cannot read more to seem busy.
  task.add(kSharedWork, "access patterns", Needs::kChecks, [](auto seed) {
    CheckedCall call({1, 64, 128, kFusedChunk}, seed);
    device::reset_traffic();
    call.run({32, 32});
    const std::string wrong = call.wrong();
    return verdict_on(wrong.empty() ? wrong_work("It", 128) : wrong);
  });
  for (const bool of_shared_memory : {false, true})
    task.add(of_shared_memory ? kFewConflicts : kCoalesced, "access patterns", Needs::kChecks,
             [of_shared_memory](auto seed) {
               return verdict_on(wrong_accesses(seed, of_shared_memory));
             });
  task.add("in the order of its stream", "order and races", Needs::kEmulator, [](auto) {
    const DeviceTensor<float, 3> x(Tensor<float, 3>({1, 20, 30})), v(Tensor<float, 3>({1, 30, 9})),
        out({1, 20, 9});
    return enqueues_on_its_stream([&](Stream stream) {
      fused_softmax_matmul_cuda({x.view(), v.view(), out.view(), stream});
    });
  });
  add_far_apart(task, [](const SoftmaxMatmul<float>& pass) {
    fused_softmax_matmul_cuda(pass);
    device::synchronize();
  });
  for (const SoftmaxMatmulCase& problem :
       {SoftmaxMatmulCase{"66000 keys: 1 x 1 x 66000 x 2", {1, 1, 66000, 2}},
        {"33000 rows: 1 x 33000 x 2 x 1", {1, 33000, 2, 1}, {64, 16}}})
    task.add(problem.name, problem.requirement(), Needs::kNoChecks,
             [run, problem](auto seed) { return judge(problem, seed, run); });
  // More than a grid is tall or deep (65535): see launches_many().
  const SoftmaxMatmulCase many{"more batches than a grid is tall: 65600 x 1 x 3 x 1",
                               {65600, 1, 3, 1}};
  task.add(many.name, "whole blocks", Needs::kEmulator, [run, many](auto seed) {
    skip_next_kernels();
    (void)judge(many, seed, run);
    return device::host_calls().value_or(device::HostCalls{}).blocks > 0 ? Verdict{true, ""}
                                                                         : launches_nothing();
  });
  task.add(many.name, "whole blocks", Needs::kGpu,
           [run, many](auto seed) { return judge(many, seed, run); });
  return task;
}

}  // namespace flash::harness
