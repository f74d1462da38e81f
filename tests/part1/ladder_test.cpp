// Every rung of part 1's ladder on every graded case.
#include "part1_softmax_matmul/ladder/ladder.hpp"

#include "common/memory_meter.hpp"
#include "harness/catch.hpp"
#include "part1/softmax_matmul_cases.hpp"

using namespace flash;
using namespace flash::part1;

TEST_CASE("every rung passes every graded case") {
  Registry<FusedCpu> registry;
  register_fused_cpu_ladder(registry);
  REQUIRE_FALSE(registry.entries().empty());
  for (const auto& rung : registry.entries())
    for (const SoftmaxMatmulCase& problem : softmax_matmul_cases()) {
      CAPTURE(rung.name, problem.name);
      harness::Verdict verdict;
      try {
        verdict = judge(problem, 1, [&](const auto& p, harness::PaddedTensor& x, harness::PaddedTensor& v, harness::PaddedTensor& out) {
            return host_memory::extra_bytes_of([&] { rung.run(x.view(), v.view(), out.view(), p.block_1, p.block_2); });
          });
      } catch (const Unsupported& constraint) {
        CHECK_FALSE(rung.constraints.empty());  // only what the entry says
        continue;
      }
      CAPTURE(verdict.text);
      CHECK(verdict.pass);
    }
}
