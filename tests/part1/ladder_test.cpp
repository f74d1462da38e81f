// Every rung of part 1's ladder on every graded case that it takes: the CPU rungs, and with
// FLASH_CUDA_LADDER the CUDA rungs on a backend.
#include <algorithm>

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
  const bool on_emulator = device::is_emulated();
#else
  using Workspace = Tensor<std::byte, 1>;
  const auto on_backend = [](auto run) { return on_host(run); };
  const bool on_emulator = false;
#endif
  const Registry registry = all_passes();
  REQUIRE_FALSE(registry.softmax_matmul.entries().empty());
  for (const auto& rung : registry.softmax_matmul.entries()) {
    int judged = 0;
    for (SoftmaxMatmulCase problem : softmax_matmul_cases()) {
      problem.blocks = {64, 64};  // a rung chooses its own; these bound the memory that it may use
      // 700 batches of few rows, of which a tile of a rung is mostly empty, take 17 s.
      if (on_emulator) problem.shape.batch = std::min<Index>(problem.shape.batch, 70);
      CAPTURE(rung.name, problem.name);
      // Differences of scores this large have no digits left: 4_split gives NaN.
      if (problem.x == kLowest) continue;
      std::string why_not;
      // The workspace that the rung asks for; what it takes besides is judged.
      std::size_t declared = 0;
      const auto run = [&](const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks&) {
        why_not = rung.why_not(problem_of(pass));
        if (!why_not.empty()) return;
        declared = rung.workspace_of(problem_of(pass));
        Workspace workspace({static_cast<Index>(declared)});
        PassMemory memory{.workspace = workspace.data()};
        rung.run.float32(pass, memory);
      };
      const RunFused measured = on_backend(run);
      const auto without_workspace = [&](auto&... arguments) {
        const std::size_t extra_bytes = measured(arguments...);
        return extra_bytes - std::min(extra_bytes, declared);
      };
      const harness::Verdict verdict = judge(problem, 1, without_workspace);
      if (!why_not.empty()) continue;
      ++judged;
      CAPTURE(verdict.text);
      CHECK(verdict.pass);
      const auto [batch, d1, d2, d3] = problem.shape;
      if (problem.measures_memory)  // less than half of softmax(X)
        CHECK(declared <= sizeof(float) * static_cast<std::size_t>(batch * d1 * d2) / 2);
    }
    CHECK(judged > 0);
  }
}
