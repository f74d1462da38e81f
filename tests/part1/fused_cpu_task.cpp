// Task part1.fused_cpu: the cases of task 1.A on the CPU function.
#include "harness/cases/far_apart.hpp"
#include "harness/judge/watched_memory.hpp"
#include "part1/softmax_matmul_cases.hpp"

namespace flash::harness {
namespace {

Verdict reads_nothing_behind(std::uint64_t seed) {
  for (const bool of_v : {false, true}) {
    const part1::RunFused run = [of_v](const auto& problem, auto& x, auto& v, auto& out) {
      const WatchBehind watch(of_v ? v : x);
      fused_softmax_matmul({x.view(), v.view(), out.view()}, problem.blocks);
      return std::size_t{0};
    };
    Verdict verdict;
    try {
      verdict = part1::judge({.shape = {1, 5, 19, 7}, .blocks = {4, 16}}, seed, run);
    } catch (const KernelError&) {
      if (!touched_behind()) throw;
      verdict = {false, read_behind(of_v ? "v" : "x")};
    }
    if (!verdict.pass) return verdict;
  }
  return {true, ""};
}

}  // namespace

TaskUnderTest fused_cpu_task() {
  TaskUnderTest task{.id = "part1.fused_cpu"};
  part1::add_softmax_matmul_cases(task, part1::on_host(fused_softmax_matmul), false);
  task.add(kBehindName, "ragged ends", reads_nothing_behind);
  part1::add_far_apart(task, [](const SoftmaxMatmul<float>& pass) { fused_softmax_matmul(pass); });
  return task;
}

}  // namespace flash::harness
