// Every rung of part 1's ladder on every graded case that it takes: the CPU rungs, and with
// FLASH_CUDA_LADDER the CUDA rungs on a backend.
#include "common/all_passes.hpp"
#include "common/cuda/device_tensor.hpp"
#include "harness/catch.hpp"
#include "harness/needs_gpu.hpp"
#include "part1/softmax_matmul_cases.hpp"

using namespace flash;
using namespace flash::part1;

TEST_CASE("every rung passes every graded case that it takes") {
#ifdef FLASH_CUDA_LADDER
  if (harness::skipped_without_gpu()) return;
  using Workspace = DeviceTensor<std::byte, 1>;
  const auto on_backend = [](auto run) { return on_device(run); };
#else
  using Workspace = Tensor<std::byte, 1>;
  const auto on_backend = [](auto run) { return on_host(run); };
#endif
  const Registry registry = all_passes();
  REQUIRE_FALSE(registry.softmax_matmul.entries().empty());
  for (const auto& rung : registry.softmax_matmul.entries()) {
    int judged = 0;
    for (SoftmaxMatmulCase problem : softmax_matmul_cases()) {
      problem.blocks = {64, 64};  // a rung chooses its own; these bound the memory that it may use
      CAPTURE(rung.name, problem.name);
      std::string why_not;
      const auto run = [&](const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks&) {
        why_not = rung.why_not(problem_of(pass));
        if (!why_not.empty()) return;
        Workspace workspace({static_cast<Index>(rung.workspace_of(problem_of(pass)))});
        PassMemory memory{.workspace = workspace.data()};
        rung.run.float32(pass, memory);
      };
      const harness::Verdict verdict = judge(problem, 1, on_backend(run));
      if (!why_not.empty()) continue;
      ++judged;
      CAPTURE(verdict.text);
      CHECK(verdict.pass);
    }
    CHECK(judged > 0);
  }
}
