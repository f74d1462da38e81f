#include "common/registry.hpp"

#include "common/best_pass.hpp"
#include "harness/catch.hpp"

using namespace flash;

namespace {

void nothing(const SoftmaxMatmul<float>&) {}

Entry<SoftmaxMatmul> entry(const std::string& name, DeviceKind device = DeviceKind::kCpu) {
  return {.name = name, .device = device, .run = {.float32 = nothing}};
}

}  // namespace

TEST_CASE("a list of passes keeps their order, and finds them by name and device") {
  PassList<SoftmaxMatmul> passes;
  passes.add(entry("1_plain"));
  passes.add(entry("2_tiles", DeviceKind::kGpu));
  passes.add(entry("1_plain", DeviceKind::kGpu));
  REQUIRE(passes.entries().size() == 3);
  CHECK(passes.entries()[1].name == "2_tiles");
  CHECK(&passes.find("1_plain", DeviceKind::kGpu) == &passes.entries()[2]);
  CHECK_THROWS_WITH(passes.find("2_tiles", DeviceKind::kCpu),
                    "pass is '2_tiles'; on cpu it must be one of: 1_plain");
  CHECK_THROWS_WITH(passes.add(entry("1_plain")), "pass '1_plain' is registered twice");
  CHECK_THROWS_WITH(passes.add({.name = "empty", .run = {}}),
                    "pass 'empty' has no function; it must have at least one");
}

TEST_CASE("an entry says in words why it does not take a problem") {
  const Tensor<float, 3> x({2, 3, 4}), v({2, 4, 5});
  Tensor<float, 3> out({2, 3, 5});
  const SoftmaxMatmul<float> pass{x.view(), v.view(), out.view()};
  Entry<SoftmaxMatmul> narrow = entry("narrow");
  CHECK_NOTHROW(check_supported(narrow, pass));
  narrow.unsupported = [](const SoftmaxMatmulProblem& problem) {
    return problem.shape.d3 > 4
               ? "d3 is " + std::to_string(problem.shape.d3) + "; it must be at most 4"
               : "";
  };
  CHECK_THROWS_WITH(check_supported(narrow, pass),
                    "'narrow' does not take this problem: d3 is 5; it must be at most 4");
  CHECK(entry("float only")
            .why_not({.shape = pass.shape(), .dtype = DType::kFloat16, .tensors = {}}) ==
        "there is no float16 version");
}

TEST_CASE("a problem knows how its tensors lie in memory") {
  Tensor<float, 3> x({2, 3, 4});
  const TensorView<const float, 3> shifted(x.data() + 1, {2, 3, 3}, {12, 4, 1});
  const TensorLayout layout = layout_of("x", shifted);
  CHECK(layout.name == "x");
  CHECK(layout.strides == std::vector<Index>{12, 4, 1});
  CHECK(layout.alignment == 4);
  CHECK(layout_of("x", x.view()).alignment >= 64);
}

TEST_CASE("flash_best hands a problem to the last rung that takes it, or to flash") {
  static std::string called;
  const auto pass = [](const std::string& name, Index most_columns) -> Entry<AttentionForward> {
    const auto call = [name](const auto&) { called = name; };
    return {.name = name,
            .run = {.float32 = call},
            .unsupported =
                [most_columns](const AttentionProblem& problem) {
                  return problem.shape.head_dim <= most_columns
                             ? ""
                             : "head_dim is above " + std::to_string(most_columns);
                },
            .workspace_bytes = [name](const AttentionProblem&) { return name.size(); },
            .best_for =
                [name](const AttentionProblem& problem) {
                  return name != "2_fast" || problem.shape.head_dim != 8;
                },
            .finite_inputs = name == "2_fast"};
  };
  Registry registry;
  for (const auto& [name, most] :
       {std::pair{"flash", 64}, {"1_slow", 32}, {"2_fast", 16}, {"pytorch_flash", 128}})
    registry.forward.add(pass(name, most));
  registry = with_best(std::move(registry));
  const Entry<AttentionForward>& best = registry.forward.find(kBest, DeviceKind::kCpu);
  CHECK(best.finite_inputs);
  CHECK(best.dtypes() == std::vector{DType::kFloat32});
  CHECK(registry.forward.find_or_null(kBest, DeviceKind::kGpu) == nullptr);
  CHECK(registry.backward.entries().empty());

  const auto chosen = [&](Index head_dim) {
    Tensor<float, 4> x({1, 1, 2, head_dim});
    Tensor<float, 3> lse({1, 1, 2});
    const AttentionForward<float> call{x.view(), x.view(), x.view(), x.view(), lse.view()};
    PassMemory memory;
    called.clear();
    best.run.float32(call, memory);
    CHECK(best.workspace_of(problem_of(call)) == called.size());
    CHECK(flash::chosen(best, problem_of(call)).name == called);
    return called;
  };
  CHECK(chosen(16) == "2_fast");
  CHECK(chosen(8) == "1_slow");  // 2_fast takes it, and is not best for it
  CHECK(chosen(17) == "1_slow");
  CHECK(chosen(64) == "flash");
  CHECK_THROWS_WITH(chosen(65), "'flash' does not take this problem: head_dim is above 64");
}
