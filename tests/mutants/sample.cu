// What mutants.py has to tell apart: barriers that are needed, one that is not, and one that only
// occurs in a comment (__syncthreads()), in a string or in code for GPUs.
#include "common/cuda/device_tensor.hpp"
#include "common/cuda/launch.hpp"
#include "mutants/sample.hpp"

namespace flash::mutants {
namespace {

constexpr int kThreads = 64;

__device__ void add(float* to, float x) {
#ifndef FLASH_SIMT
  atomicAdd(reinterpret_cast<float2*>(to), make_float2(x, 0));  // 0
#else
  atomicAdd(to, x);  // 1
#endif
}

__global__ void sample_kernel(float* out, char quote) {
  __shared__ float tile[kThreads];
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (quote == '"') __syncthreads();  // 2
  const float x = tile[(threadIdx.x + 32) % kThreads];
  add(out, x);
  __syncthreads(), tile[threadIdx.x] = x, __syncwarp(0xffffffffu);  // 3, 4
  const float y = tile[threadIdx.x ^ 1];
  __syncthreads();  // 5: no race without it: 6 is enough within a warp
  __syncwarp();     // 6
  tile[threadIdx.x] = y;
  __syncwarp();  // 7: no race without it: which is not true
  out[1 + blockIdx.x * kThreads + threadIdx.x] = tile[threadIdx.x ^ 1];
}

}  // namespace

const char* run_sample() {
  const DeviceTensor<float, 1> out(Tensor<float, 1>({1 + 2 * kThreads}));
  launch("sample", sample_kernel, {.grid = 2u, .block = static_cast<unsigned>(kThreads)},
         out.data(), '"');
  device::synchronize();
  return "__syncthreads()";
}

}  // namespace flash::mutants
