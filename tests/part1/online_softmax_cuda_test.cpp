// The given online softmax in CUDA, on the GPU and on the emulator: the same checks as of the C++ one.

#include "harness/needs_gpu.hpp"
#include "part1/device_copies.hpp"
#include "part1/given_checks.hpp"

using namespace flash;
using namespace flash::part1;
using harness::skipped_without_gpu;

TEST_CASE("online softmax equals the oracle") {
  if (skipped_without_gpu()) return;
  check_online_softmax([](TensorView<const float, 2> x, TensorView<float, 2> out) {
    const auto device_x = device_copy(x), device_out = device_copy(out);
    online_softmax_cuda(device_x.view(), device_out.view());
    copy_back(device_out, out);
  });
}
