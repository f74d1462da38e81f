// The boards of a GPU: what problem.hpp leaves to the device, but for its problems.
#include <cuda_runtime.h>

#include "benchmarking/leaderboard/problem.hpp"
#include "common/cuda/check.hpp"
#include "common/cuda/device.hpp"

namespace flash::leaderboard {
namespace {

#ifndef FLASH_SIMT
int attribute(cudaDeviceAttr which) {
  int value = 0;
  FLASH_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, 0));
  return value;
}

// Dense products of 16-bit numbers on the tensor cores of one multiprocessor: operations a clock.
// No result that passes the check takes fewer of them.
double operations_a_clock(int capability) {
  if (capability < 80) return 1024;                            // Volta, Turing
  if (capability < 90) return capability == 80 ? 2048 : 1024;  // A100; Ampere, Ada
  return capability < 100 ? 4096 : 8192;                       // Hopper; Blackwell at most
}
#endif

}  // namespace

std::unique_ptr<grading::CallMemory> memory_of_calls() { return grading::memory_of_gpu(); }

// Not measured but by the data sheet's formulas: a floor that no program is under.
Rates rates_now() {
  Rates rates{.peak_gflops = 1e6, .bandwidth_gbs = 1e6};
#ifndef FLASH_SIMT
  rates.peak_gflops = 1e-6 * attribute(cudaDevAttrClockRate) * device::multiprocessors() *
                      operations_a_clock(device::compute_capability());
  rates.bandwidth_gbs =
      2e-6 / 8 * attribute(cudaDevAttrMemoryClockRate) * attribute(cudaDevAttrGlobalMemoryBusWidth);
#endif
  return rates;
}

}  // namespace flash::leaderboard
