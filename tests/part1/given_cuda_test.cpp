// What part 1 gives, on the GPU: the same checks as on the CPU, through copies on the device.
#include "common/cuda/device_tensor.hpp"
#include "harness/needs_gpu.hpp"
#include "part1/given_checks.hpp"

using namespace flash;
using namespace flash::part1;
using harness::skipped_without_gpu;

TEST_CASE("the unfused softmax-matmul equals the oracle, along each axis") {
  if (skipped_without_gpu()) return;
  check_unfused(
      [](const Tensor<float, 3>& x, const Tensor<float, 3>& v, Tensor<float, 3>& out, int axis) {
        const DeviceTensor device_x(x), device_v(v), device_out(out);
        softmax_matmul_cuda({device_x.view(), device_v.view(), device_out.view()}, axis);
        device::synchronize();
        out = device_out.to_host();
      });
}

TEST_CASE(
    "the unfused softmax-matmul holds the whole softmax in memory, and reports when it does not "
    "fit") {
  if (skipped_without_gpu()) return;
  const DeviceTensor x(make_input<3>({1, 256, 512}, kNormal, 1)),
      v(make_input<3>({1, 512, 16}, kNormal, 2));
  const DeviceTensor<float, 3> out({1, 256, 16});
  const SoftmaxMatmul<float> pass{x.view(), v.view(), out.view()};
  const std::size_t before = device::memory_in_use();
  device::reset_peak_memory();
  softmax_matmul_cuda(pass);
  CHECK(device::peak_memory() - before == 256 * 512 * sizeof(float));
  device::set_memory_limit(before + 1000);
  CHECK_THROWS_AS(softmax_matmul_cuda(pass), OutOfMemory);
  device::set_memory_limit(std::nullopt);
  CHECK(device::memory_in_use() == before);
}

TEST_CASE("the unfused softmax-matmul refuses strides that cuBLAS cannot take") {
  if (skipped_without_gpu()) return;
  const DeviceTensor<float, 3> x({1, 4, 8}), v({1, 8, 8}), out({1, 4, 8});
  CHECK_THROWS_AS(softmax_matmul_cuda({x.view(), {v.data(), {1, 8, 8}, {64, 1, 8}}, out.view()}),
                  Unsupported);
}
