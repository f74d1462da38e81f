#include "common/registry.hpp"

#include "harness/catch.hpp"

using namespace flash;

namespace {
void nothing() {}
}  // namespace

TEST_CASE("a registry lists what was added, in order, and finds it by name") {
  Registry<void()> registry;
  registry.add({.name = "1_plain", .device = DeviceKind::kCpu, .dtypes = {DType::kFloat32}, .constraints = "", .run = nothing});
  registry.add({.name = "2_tiles", .device = DeviceKind::kGpu, .dtypes = {DType::kFloat32, DType::kFloat64}, .constraints = "", .run = nothing});
  REQUIRE(registry.entries().size() == 2);
  CHECK(registry.entries()[1].name == "2_tiles");
  CHECK(to_string(registry.find("2_tiles").device) == "cuda");
  CHECK(to_string(registry.find("1_plain").dtypes[0]) == "float32");
}

TEST_CASE("a registry refuses a name twice, an entry without a function or a dtype, and an unknown name") {
  Registry<void()> registry;
  registry.add({.name = "a", .device = DeviceKind::kCpu, .dtypes = {DType::kFloat32}, .constraints = "", .run = nothing});
  CHECK_THROWS_WITH(registry.add({.name = "a", .device = DeviceKind::kCpu, .dtypes = {DType::kFloat32}, .constraints = "", .run = nothing}),
                    "implementation 'a' is registered twice");
  CHECK_THROWS_AS(registry.add({.name = "b", .device = DeviceKind::kCpu, .dtypes = {DType::kFloat32}, .constraints = "", .run = nullptr}), ArgumentError);
  CHECK_THROWS_AS(registry.add({.name = "b", .device = DeviceKind::kCpu, .dtypes = {}, .constraints = "", .run = nothing}), ArgumentError);
  CHECK_THROWS_WITH(registry.find("c"), "implementation is 'c'; it must be one of: a");
}
