#include "benchmarking/read_bytes.hpp"
#include "common/cuda/device.hpp"
#include "common/cuda/launch.hpp"

namespace flash {
namespace {

constexpr unsigned kThreads = 256, kLoads = 4, kBlocks = 8;  // of a multiprocessor

__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* first, const uint4* second, unsigned count, unsigned* sum) {
  const unsigned steps = (count + kThreads * kLoads - 1) / (kThreads * kLoads);
  unsigned x = 0;
  for (unsigned step = blockIdx.x; step < 2 * steps; step += gridDim.x) {
    const uint4* const from = step < steps ? first : second;
    const unsigned begin = step % steps * (kThreads * kLoads) + threadIdx.x;
    uint4 loaded[kLoads];
    FLASH_UNROLL
    for (unsigned i = 0; i < kLoads; ++i)
      loaded[i] = begin + i * kThreads < count ? from[begin + i * kThreads] : uint4{0, 0, 0, 0};
    FLASH_UNROLL
    for (unsigned i = 0; i < kLoads; ++i)
      x ^= loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
  }
  // Without a store nvcc would leave out the loads. One thread in 2^32 has this sum.
  if (x == 0x9e3779b9U) *sum = x;
}

}  // namespace

void read_bytes(const void* first, const void* second, std::size_t bytes, void* sum) {
  launch("read_bytes", read_kernel,
         {.grid = kBlocks * static_cast<unsigned>(device::multiprocessors()), .block = kThreads},
         static_cast<const uint4*>(first), static_cast<const uint4*>(second),
         static_cast<unsigned>(bytes / 16), static_cast<unsigned*>(sum));
}

}  // namespace flash
