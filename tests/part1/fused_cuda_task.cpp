// Task part1.fused_cuda: the cases of task 1.A on the CUDA function.
#include <string>

#include "common/inputs.hpp"
#include "harness/device_copy.hpp"
#include "part1/softmax_matmul_cases.hpp"
#include "part1_softmax_matmul/softmax_matmul.hpp"

namespace flash::harness {

namespace {

using part1::SoftmaxMatmulCase;

std::string bytes_text(const char* what, std::size_t got, const char* relation, std::size_t want, const char* formula) {
  return std::string(what) + ": " + std::to_string(got) + " bytes; it has to be " + relation + std::to_string(want) + ", " + formula;
}

// The handout's formula: what a fused kernel has to move, and nothing else. Only the emulator's checks can count it.
Verdict judge_traffic(std::uint64_t seed) {
  const SoftmaxMatmulCase p{.name = "", .batch = 2, .d1 = 70, .d2 = 100, .d3 = 300, .block_1 = 32, .block_2 = 16};
  PaddedTensor x(make_input<3>({p.batch, p.d1, p.d2}, Pattern::kNormal, 2 * seed), Layout::kRowMajor);
  PaddedTensor v(make_input<3>({p.batch, p.d2, p.d3}, Pattern::kNormal, 2 * seed + 1), Layout::kRowMajor);
  PaddedTensor out(Shape<3>{p.batch, p.d1, p.d3}, Layout::kRowMajor);
  DeviceCopy device_x(x), device_v(v), device_out(out);
  device::reset_traffic();
  fused_softmax_matmul_cuda(device_x.view(), device_v.view(), device_out.view(), p.block_1, p.block_2);
  const auto traffic_x = device::traffic(device_x.memory()), traffic_v = device::traffic(device_v.memory()),
             traffic_out = device::traffic(device_out.memory());
  if (!traffic_x || !traffic_v || !traffic_out) return {false, "the emulator did not count"};

  const auto blocks_of = [](Index n, Index block) { return (n + block - 1) / block; };
  const std::size_t x_bytes = sizeof(float) * p.batch * p.d1 * p.d2, v_bytes = sizeof(float) * p.batch * p.d2 * p.d3,
                    out_bytes = sizeof(float) * p.batch * p.d1 * p.d3;
  const std::size_t most_x = x_bytes * blocks_of(p.d3, kFusedChunk), most_v = v_bytes * blocks_of(p.d1, p.block_1);
  if (traffic_x->loaded_bytes > most_x)
    return {false, bytes_text("It loads too much of x", traffic_x->loaded_bytes, "at most ", most_x, "all of x once for each chunk of columns")};
  if (traffic_v->loaded_bytes > most_v)
    return {false, bytes_text("It loads too much of v", traffic_v->loaded_bytes, "at most ", most_v, "all of v once for each block of rows")};
  if (traffic_x->stored_bytes + traffic_v->stored_bytes != 0)
    return {false, bytes_text("It stores to x or v", traffic_x->stored_bytes + traffic_v->stored_bytes, "", 0, "since they are inputs")};
  if (traffic_out->stored_bytes != out_bytes)
    return {false, bytes_text("It stores out more, or less, than once", traffic_out->stored_bytes, "", out_bytes, "each element once")};
  if (traffic_out->loaded_bytes != 0) return {false, bytes_text("It loads from out", traffic_out->loaded_bytes, "", 0, "since sums belong in registers")};
  return {true, ""};
}

}  // namespace

TaskUnderTest task_under_test() {
  const auto run = [](const part1::SoftmaxMatmulCase& problem, PaddedTensor& x, PaddedTensor& v, PaddedTensor& out) {
    DeviceCopy device_x(x), device_v(v), device_out(out);
    const std::size_t before = device::memory_in_use();
    device::reset_peak_memory();
    fused_softmax_matmul_cuda(device_x.view(), device_v.view(), device_out.view(), problem.block_1, problem.block_2);
    device::synchronize();
    const std::size_t extra_bytes = device::peak_memory() - before;
    device_x.copy_back();
    device_v.copy_back();
    device_out.copy_back();
    return extra_bytes;
  };
  TaskUnderTest task{.id = "part1.fused_cuda",
                     .needs_gpu = true,
                     .has_gpu = [] { return device::count() > 0; },
                     .cases = part1::graded_softmax_matmul(run)};
  task.cases.push_back({.name = "checks: no race and no stray access",
                        .weight = 3,
                        .run = [run](std::uint64_t seed) {
                          for (const SoftmaxMatmulCase& problem :
                               {SoftmaxMatmulCase{.name = "", .batch = 2, .d1 = 33, .d2 = 47, .d3 = 300},
                                SoftmaxMatmulCase{.name = "", .d1 = 70, .d2 = 100, .d3 = 40, .block_1 = 64, .block_2 = 32},
                                SoftmaxMatmulCase{.name = "", .d1 = 20, .d2 = 130, .d3 = 9, .block_1 = 16, .block_2 = 64}})
                            if (const Verdict verdict = part1::judge(problem, seed, run); !verdict.pass) return verdict;
                          return Verdict{true, ""};
                        },
                        .needs_checks = true});
  task.cases.push_back({.name = "checks: x and v are loaded no more often than they must be",
                        .weight = 3,
                        .run = judge_traffic,
                        .needs_checks = true});
  // More batches than a grid is tall or deep (65535). For GPUs only: as many blocks take the emulator too long.
  if (device::is_emulated()) return task;
  const part1::SoftmaxMatmulCase tall{.name = "more batches than a grid is tall: 65600 x 1 x 3 x 1", .batch = 65600, .d2 = 3};
  task.cases.push_back({tall.name, 1, [tall, run](std::uint64_t seed) { return part1::judge(tall, seed, run); }});
  return task;
}

}  // namespace flash::harness
