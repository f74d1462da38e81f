// Implements runtime_kernels.hpp.
#include <stdexcept>
#include <vector>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/launch.hpp"
#include "simt/runtime_kernels.hpp"

namespace flash::runtime_kernels {
namespace {

__global__ void nothing() {}

__global__ void waits_for_nobody(float* out) {
  if (threadIdx.x == 0) out[0] = __shfl_sync(0xffffffffu, 1.0f, 1);
  __syncthreads();
}

__global__ void writes_dynamic_shared() {
  FLASH_DYNAMIC_SHARED(float, tile);
  tile[threadIdx.x] = 1;
}

__device__ __noinline__ float deep(int depth, volatile float* out) {
  volatile float local[1024];
  local[depth % 1024] = static_cast<float>(depth);
  if (depth > 1000000) return 0;
  return local[depth % 1024] + deep(depth + 1, out) + out[0];
}
__global__ void recurses(float* out) { out[threadIdx.x] = deep(0, out); }

__global__ void throws_kernel() { throw std::runtime_error("a message"); }

__global__ void transpose_kernel(const float* x, float* out, int n) {
  __shared__ float tile[32][33];
  tile[threadIdx.y][threadIdx.x] =
      x[(blockIdx.y * 32 + threadIdx.y) * n + blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  out[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] =
      tile[threadIdx.x][threadIdx.y];
}

// What it holds of shared memory: `kBytes`, and what the launch adds.
template <int kBytes>
__global__ void holds(float* out) {
  __shared__ volatile char bytes[kBytes];
  bytes[kBytes - 1 - threadIdx.x] = 1;
  if (out != nullptr) out[threadIdx.x] = bytes[kBytes - 1 - threadIdx.x];
}

__global__ void add_block_number(int* sum) {
  if (threadIdx.x == 0) atomicAdd(sum, static_cast<int>(blockIdx.x));
}

__constant__ float factors[4];
__device__ int counter = 7;
__global__ void uses_symbols(float* out) {
  out[threadIdx.x] = factors[threadIdx.x] * static_cast<float>(counter);
}

// Collects calls that return another error code than they should.
class Expectations {
 public:
  void expect(int got, cudaError_t want, const std::string& what) {
    if (got != want)
      wrong_ += what + " gives " + cudaGetErrorName(static_cast<cudaError_t>(got)) + "; ";
  }
  void expect_true(bool holds, const std::string& what) {
    if (!holds) wrong_ += what + " is wrong; ";
  }
  std::string wrong() const {
    (void)cudaGetLastError();
    return wrong_;
  }

 private:
  std::string wrong_;
};

dim3 dim3_of(const std::array<unsigned, 3>& size) { return dim3(size[0], size[1], size[2]); }

}  // namespace

std::string launch_error(std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
                         std::size_t shared_bytes) {
  return cudaGetErrorName(static_cast<cudaError_t>(simt::launch(
      "nothing", nothing, dim3_of(grid), dim3_of(block), shared_bytes, nullptr, std::tuple<>())));
}

std::string shared_memory_errors() {
  Expectations calls;
  constexpr int kKiB = 1024;
  const auto expect = [&](auto* kernel, std::size_t dynamic_bytes, cudaError_t want,
                          const char* what) {
    calls.expect(simt::launch("holds", kernel, dim3(1), dim3(1), dynamic_bytes, nullptr,
                              std::tuple<float*>(nullptr)),
                 want, what);
  };
  const auto allow = [&](int bytes) {
    return cudaFuncSetAttribute(holds<20 * kKiB>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                bytes);
  };
  expect(holds<20 * kKiB>, 28 * kKiB, cudaSuccess, "48 KiB, 20 of them an array");
  expect(holds<20 * kKiB>, 28 * kKiB + 1, cudaErrorInvalidValue, "a byte more");
  expect(holds<21 * kKiB>, 0, cudaSuccess, "an array, and other kernels with theirs");
  calls.expect(allow(207 * kKiB), cudaSuccess, "asking for 227 KiB");
  expect(holds<20 * kKiB>, 207 * kKiB, cudaSuccess, "227 KiB, when asked for");
  calls.expect(allow(207 * kKiB + 1), cudaErrorInvalidValue, "asking for 227 KiB and a byte");
  cudaFuncAttributes attributes{};
  calls.expect(cudaFuncGetAttributes(&attributes, holds<21 * kKiB>), cudaSuccess,
               "cudaFuncGetAttributes");
  calls.expect_true(attributes.sharedSizeBytes == 21 * kKiB, "sharedSizeBytes");
  calls.expect_true(attributes.maxDynamicSharedSizeBytes == 27 * kKiB, "maxDynamicSharedSizeBytes");
  return calls.wrong();
}

void large_array() {
  launch("holds", holds<49 * 1024>, {.grid = 1, .block = 1}, static_cast<float*>(nullptr));
}

#define GIVES(want, call) calls.expect(call, want, #call)
#define INVALID(call) GIVES(cudaErrorInvalidValue, call)
#define SUCCEEDS(call) GIVES(cudaSuccess, call)

std::string copy_errors() {
  Expectations calls;
  float* device = nullptr;
  std::vector<float> host(100, 2.0f);
  SUCCEEDS(cudaMalloc(&device, 400));
  SUCCEEDS(cudaMemcpy(device, host.data(), 400, cudaMemcpyHostToDevice));
  // a copy past the end
  INVALID(cudaMemcpy(device + 1, host.data(), 400, cudaMemcpyHostToDevice));
  INVALID(cudaGetLastError());
  SUCCEEDS(cudaGetLastError());
  // a copy in the wrong direction
  INVALID(cudaMemcpy(host.data(), device, 400, cudaMemcpyHostToDevice));
  SUCCEEDS(cudaMemcpy(host.data(), device, 400, cudaMemcpyDefault));
  INVALID(cudaMemset(device, 0, 401));
  SUCCEEDS(cudaMemcpy2D(device, 40, host.data(), 20, 16, 5, cudaMemcpyHostToDevice));
  // rows wider than their distance
  INVALID(cudaMemcpy2D(device, 8, host.data(), 20, 16, 5, cudaMemcpyHostToDevice));
  INVALID(cudaFree(device + 1));
  SUCCEEDS(cudaFree(device));
  INVALID(cudaFree(device));
  // a copy to freed memory
  INVALID(cudaMemcpy(device, host.data(), 4, cudaMemcpyHostToDevice));
  GIVES(cudaErrorMemoryAllocation, cudaMalloc(&device, std::size_t{1} << 50));  // a petabyte

  const float values[4] = {1, 2, 3, 4};
  SUCCEEDS(cudaMemcpyToSymbol(factors, values, sizeof values));
  const DeviceTensor<float, 1> out({4});
  launch("uses_symbols", uses_symbols, {.grid = 1, .block = 4}, out.data());
  for (Index i = 0; i < 4; ++i)
    calls.expect_true(out.to_host()(i) == 7 * static_cast<float>(i + 1),
                      "a kernel's __constant__ or __device__ variable");
  return calls.wrong();
}

std::string streams_and_events() {
  Expectations calls;
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr, end = nullptr;
  float milliseconds = -1;
  SUCCEEDS(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  SUCCEEDS(cudaEventCreate(&start));
  SUCCEEDS(cudaEventCreateWithFlags(&end, cudaEventDefault));
  GIVES(cudaErrorInvalidResourceHandle,
        cudaEventElapsedTime(&milliseconds, start, end));  // not recorded
  SUCCEEDS(cudaEventRecord(start, stream));
  SUCCEEDS(cudaEventRecord(end, stream));
  SUCCEEDS(cudaStreamWaitEvent(stream, end));
  SUCCEEDS(cudaStreamSynchronize(stream));
  SUCCEEDS(cudaEventSynchronize(end));
  SUCCEEDS(cudaEventQuery(end));
  SUCCEEDS(cudaStreamQuery(stream));
  SUCCEEDS(cudaEventElapsedTime(&milliseconds, start, end));
  calls.expect_true(milliseconds >= 0, "the time between two events");
  SUCCEEDS(cudaEventDestroy(start));
  SUCCEEDS(cudaEventDestroy(end));
  SUCCEEDS(cudaStreamDestroy(stream));
  return calls.wrong();
}

void too_little_shared_memory() {
  launch("writes_dynamic_shared", writes_dynamic_shared,
         {.grid = 1, .block = 96, .shared_bytes = 256});
}

void deadlock() {
  const DeviceTensor<float, 1> out({1});
  launch("waits_for_nobody", waits_for_nobody, {.grid = 1, .block = 32}, out.data());
}

void stack_overflow() {
  const DeviceTensor<float, 1> out(Tensor<float, 1>({32}));
  launch("recurses", recurses, {.grid = 1, .block = 32}, out.data());
}

void throws() { launch("throws_kernel", throws_kernel, {.grid = 1, .block = 32}); }

void transpose(int n) {
  Tensor<float, 2> x({n, n});
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(i);
  const DeviceTensor<float, 2> device_x(x), out({n, n});
  const unsigned tiles = static_cast<unsigned>(n / 32);
  launch("transpose", transpose_kernel, {.grid = dim3(tiles, tiles), .block = dim3(32, 32)},
         device_x.data(), out.data(), n);
  const Tensor<float, 2> result = out.to_host();
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j)
      if (result(i, j) != x(j, i)) throw Error("the transposed matrix is wrong");
}

int sum_of_blocks(int blocks) {
  const DeviceTensor<int, 1> sum(Tensor<int, 1>({1}));
  launch("add_block_number", add_block_number, {.grid = grid_size(blocks), .block = 64},
         sum.data());
  return sum.to_host()(0);
}

}  // namespace flash::runtime_kernels
