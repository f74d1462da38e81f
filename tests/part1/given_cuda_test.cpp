// What part 1 gives, on the GPU: the same checks as on the CPU, through copies on the device.

#include "harness/needs_gpu.hpp"
#include "part1/device_copies.hpp"
#include "part1/given_checks.hpp"

using namespace flash;
using namespace flash::part1;
using harness::skipped_without_gpu;

TEST_CASE("the unfused softmax-matmul equals the oracle, along each axis") {
  if (skipped_without_gpu()) return;
  check_unfused([](TensorView<const float, 3> x, TensorView<const float, 3> v, TensorView<float, 3> out, int axis) {
    const auto device_x = device_copy(x), device_v = device_copy(v), device_out = device_copy(out);
    softmax_matmul_cuda(device_x.view(), device_v.view(), device_out.view(), axis);
    copy_back(device_out, out);
  });
}

TEST_CASE("the unfused softmax-matmul holds the whole softmax in memory, and reports when it does not fit") {
  if (skipped_without_gpu()) return;
  const DeviceTensor<float, 3> x(make_input<3>({1, 256, 512}, Pattern::kNormal, 1));
  const DeviceTensor<float, 3> v(make_input<3>({1, 512, 16}, Pattern::kNormal, 2));
  const DeviceTensor<float, 3> out({1, 256, 16});
  const std::size_t before = device::memory_in_use();
  device::reset_peak_memory();
  softmax_matmul_cuda(x.view(), v.view(), out.view());
  CHECK(device::peak_memory() - before == 256 * 512 * sizeof(float));
  device::set_memory_limit(before + 1000);
  CHECK_THROWS_AS(softmax_matmul_cuda(x.view(), v.view(), out.view()), OutOfMemory);
  device::set_memory_limit(std::nullopt);
  CHECK(device::memory_in_use() == before);
}

TEST_CASE("the unfused softmax-matmul refuses strides that cuBLAS cannot take") {
  if (skipped_without_gpu()) return;
  const DeviceTensor<float, 3> x({1, 4, 8}), v({1, 8, 8}), out({1, 4, 8});
  const TensorView<const float, 3> transposed(v.data(), {1, 8, 8}, {64, 1, 8});
  CHECK_THROWS_AS(softmax_matmul_cuda(x.view(), transposed, out.view()), Unsupported);
}
