// The given online softmax in CUDA, on the GPU and on the emulator: the same checks as of the C++
// one.
#include "common/cuda/device_tensor.hpp"
#include "harness/needs_gpu.hpp"
#include "part1/given_checks.hpp"

using namespace flash;
using namespace flash::part1;

TEST_CASE("online softmax equals the oracle") {
  if (harness::skipped_without_gpu()) return;
  check_online_softmax([](const Tensor<float, 3>& x, Tensor<float, 3>& out) {
    const DeviceTensor device_x(x), device_out(out);
    online_softmax_cuda(matrix(device_x.view()), matrix(device_out.view()));
    device::synchronize();
    out = device_out.to_host();
  });
}
