// Part 1's contracts: what wrong arguments give, one clear line each (the checks are given code, in
// skeletons too); what the bound leaves out; and what is in the registry.
#include <cmath>

#include "common/all_passes.hpp"
#include "harness/catch.hpp"
#include "part1/softmax_matmul_cases.hpp"
#include "part1_softmax_matmul/measure.hpp"

using namespace flash;
using namespace flash::part1;

static const TaskLibraries tasks = all_passes().tasks;

TEST_CASE("fused_softmax_matmul refuses what does not fit, in one line") {
  const auto run = [](Shape<3> x, Shape<3> v, Shape<3> out, SoftmaxMatmulBlocks blocks = {}) {
    Tensor<float, 3> a(x), b(v), c(out);
    tasks.library<FusedCpuTask>()->fused_softmax_matmul({a.view(), b.view(), c.view()}, blocks);
  };
  const Shape<3> x{2, 3, 4}, v{2, 4, 5}, out{2, 3, 5};
  CHECK_THROWS_WITH(run(x, v, out, {0, 16}), "block_1 is 0; it must be at least 1");
  CHECK_THROWS_WITH(run(x, v, out, {16, -3}), "block_2 is -3; it must be at least 1");
  CHECK_THROWS_WITH(run(x, {3, 4, 5}, out),
                    "v has shape (3, 4, 5); it must be (batch = 2, d2 = 4, d3) with d3 at least 1");
  CHECK_THROWS_AS(run(x, {2, 7, 5}, out), ShapeError);
  CHECK_THROWS_AS(run(x, {2, 4, 0}, out), ShapeError);
  CHECK_THROWS_WITH(
      run({0, 3, 4}, v, out),
      "x has shape (0, 3, 4); it must be (batch, d1, d2) with batch and d1 at least 1");
  CHECK_THROWS_AS(run({2, 0, 4}, v, out), ShapeError);
  CHECK_THROWS_WITH(run(x, v, {2, 4, 5}),
                    "out has shape (2, 4, 5); it must be (batch, d1, d3) = (2, 3, 5)");
}

TEST_CASE("measure refuses numbers of passes that make no sense") {
  struct Nothing : Work, Clock {
    void run() override {}
    void reset_peak_memory() override {}
    std::size_t peak_memory_bytes() override { return 0; }
    void synchronize() override {}
    double now_ms() override { return 0; }
  } nothing;
  const auto task = tasks.library<MeasureTask>();
  CHECK_THROWS_WITH(task->measure(nothing, nothing, -1, 1), "warmups is -1; it must be at least 0");
  CHECK_THROWS_WITH(task->measure(nothing, nothing, 0, 0), "passes is 0; it must be at least 1");
}

TEST_CASE("the bound leaves out what is wrong: one key of many missed, or one counted twice") {
  const SoftmaxMatmulCase problem{"many keys", {1, 9, 4099, 12}};
  const auto without_key = [](Index hidden) {
    return on_host([hidden](SoftmaxMatmul<float> pass, const SoftmaxMatmulBlocks& blocks) {
      Tensor<float, 3> scores = packed(pass.x);
      for (Index i = 0; i < scores.extent(1) && hidden >= 0; ++i) scores(0, i, hidden) = -INFINITY;
      pass.x = scores.view();
      tasks.library<FusedCpuTask>()->fused_softmax_matmul(pass, blocks);
    });
  };
  CHECK(judge(problem, 1, without_key(-1)).pass);
  CHECK_FALSE(judge(problem, 1, without_key(0)).pass);
  CHECK_FALSE(judge(problem, 1, without_key(4098)).pass);
}

TEST_CASE("the registry has the unfused pass, and the fused one at three block sizes") {
  const Registry registry = all_passes();
  for (const char* const name : {"unfused", "fused_16", "fused_32", "fused_64"}) {
    const auto& entry = registry.softmax_matmul.find(name, DeviceKind::kCpu);
    const auto run = [&](const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks&) {
      PassMemory memory;
      entry.run.float32(pass, memory);
    };
    CHECK(judge({"ragged", {2, 33, 47, 35}}, 1, on_host(run)).pass);
  }
  const auto* const unfused = registry.softmax_matmul.find_or_null("unfused", DeviceKind::kGpu);
  if (unfused == nullptr) return;  // a build without CUDA
  Tensor<float, 3> x({1, 4, 8}), v({1, 8, 8}), out({1, 4, 8});
  SoftmaxMatmul<float> pass{x.view(), v.view(), out.view()};
  CHECK(unfused->why_not(problem_of(pass)) == "");
  pass.v = {v.data(), {1, 8, 8}, {64, 1, 8}};
  CHECK(unfused->why_not(problem_of(pass)) ==
        "rows and columns of v are 1 and 8 elements apart; for cuBLAS columns must be 1 and rows "
        "at least 8");
  for (const int block : {16, 32, 64})
    CHECK_NOTHROW(registry.softmax_matmul.find("fused_" + std::to_string(block), DeviceKind::kGpu));
}
