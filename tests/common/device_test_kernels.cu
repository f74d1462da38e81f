// Kernels for device_test.cpp, and how they are launched.
#include "common/cuda/launch.hpp"

namespace flash::device_test {
namespace {

__global__ void add_kernel(float* data, int count, float value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] += value;
}

// Reverses each block's elements through dynamic shared memory.
__global__ void reverse_kernel(float* data) {
  FLASH_DYNAMIC_SHARED(float, tile);
  tile[threadIdx.x] = data[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  data[blockIdx.x * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

}  // namespace

FLASH_EXPORT void add(float* data, int count, float value, unsigned threads, Stream stream) {
  launch("add", add_kernel,
         {.grid = grid_size((count + 127) / 128), .block = threads, .stream = stream}, data, count,
         value);
}

FLASH_EXPORT void reverse(float* data, unsigned blocks, unsigned threads,
                          std::size_t shared_bytes) {
  launch("reverse", reverse_kernel,
         {.grid = blocks, .block = threads, .shared_bytes = shared_bytes}, data);
}

FLASH_EXPORT void bad_call() { FLASH_CUDA_CHECK(cudaSetDevice(12345)); }

FLASH_EXPORT void* new_stream() {
  cudaStream_t stream = nullptr;
  FLASH_CUDA_CHECK(cudaStreamCreate(&stream));
  return stream;
}

}  // namespace flash::device_test
