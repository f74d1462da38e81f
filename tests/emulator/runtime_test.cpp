// The emulated CUDA runtime as host code sees it: CUDA's own error codes, memory that host code
// cannot touch, schedules, and what becomes of kernels that fail.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "harness/catch.hpp"

// last: __noinline__ is a macro from here on
#include <cuda_runtime.h>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/launch.hpp"
#include "emulator/run/simt.hpp"

using namespace flash;
using flash::harness::ContainsSubstring;

namespace {

// Before the emulator reads it: blocks run on several OS threads.
const int environment_is_set = setenv("FLASH_SIMT_THREADS", "5", 1);

__global__ void nothing() {}

__global__ void waits_for_nobody() {
  if (threadIdx.x == 0) (void)__shfl_sync(0xffffffffu, 1.0f, 1);
  __syncthreads();
}

__global__ void writes_dynamic_shared() {
  FLASH_DYNAMIC_SHARED(float, tile);
  tile[threadIdx.x] = 1;
}

__device__ __attribute__((noinline)) float deep(int depth) {
  volatile float local[1024];
  local[depth % 1024] = static_cast<float>(depth);
  return depth > 1000000 ? 0 : local[depth % 1024] + deep(depth + 1);
}
__global__ void recurses(float* out) { *out = deep(0); }

__global__ void throws_kernel() { throw std::runtime_error("a message"); }

// What it holds of shared memory: `kBytes`, and what the launch adds.
template <int kBytes>
__global__ void holds() {
  __shared__ volatile char bytes[kBytes];
  bytes[kBytes - 1 - threadIdx.x] = bytes[threadIdx.x];
}

__global__ void add_block_number(int* sum) {
  if (threadIdx.x == 0) atomicAdd(sum, static_cast<int>(blockIdx.x));
}

__constant__ float factors[4];
__device__ int counter = 7;
__global__ void uses_symbols(float* out) {
  out[threadIdx.x] = factors[threadIdx.x] * static_cast<float>(counter);
}

// The error that a launch gives.
cudaError_t launch_error(void (*kernel)(), dim3 grid, dim3 block, std::size_t shared_bytes) {
  return static_cast<cudaError_t>(
      simt::launch("kernel", kernel, grid, block, shared_bytes, nullptr, std::tuple<>()));
}

}  // namespace

TEST_CASE("a launch that cannot be gives CUDA's error code") {
  CHECK(launch_error(nothing, 1, 32, 0) == cudaSuccess);
  for (const dim3 grid : {dim3(0), dim3(1, 1, 0), dim3(1, 65536)})
    CHECK(launch_error(nothing, grid, 32, 0) == cudaErrorInvalidConfiguration);
  for (const dim3 block : {dim3(0), dim3(1025), dim3(32, 33), dim3(1, 1, 65)})
    CHECK(launch_error(nothing, 1, block, 0) == cudaErrorInvalidConfiguration);
  simt::skip_kernels(true);  // but not the checks of their launches
  CHECK(launch_error(nothing, dim3(1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(launch_error(waits_for_nobody, 1, 32, 0) == cudaSuccess);
  simt::skip_kernels(false);
  CHECK(cudaGetErrorName(cudaGetLastError()) == std::string("cudaErrorInvalidConfiguration"));
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("a kernel's own shared arrays count with what the launch asks for") {
  constexpr int kKiB = 1024;
  CHECK(launch_error(holds<20 * kKiB>, 1, 1, 28 * kKiB) == cudaSuccess);
  CHECK(launch_error(holds<20 * kKiB>, 1, 1, 28 * kKiB + 1) == cudaErrorInvalidValue);
  CHECK(launch_error(holds<21 * kKiB>, 1, 1, 0) == cudaSuccess);  // beside another kernel's
  const auto allow = [](int bytes) {
    return cudaFuncSetAttribute(holds<20 * kKiB>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                bytes);
  };
  CHECK(allow(207 * kKiB) == cudaSuccess);
  CHECK(launch_error(holds<20 * kKiB>, 1, 1, 207 * kKiB) == cudaSuccess);
  CHECK(allow(207 * kKiB + 1) == cudaErrorInvalidValue);
  CHECK_THROWS_WITH(launch("holds", holds<49 * kKiB>, {.grid = 1, .block = 1}),
                    ContainsSubstring("its __shared__ arrays take 50176 bytes; nvcc allows 49152"));
}

TEST_CASE("copies check where they go") {
  const auto allocated = [] {
    float* memory = nullptr;
    CHECK(cudaMalloc(&memory, 400) == cudaSuccess);
    return memory;
  };
  float* const device = allocated();
  float host[100];
  CHECK(cudaMemcpy(device, host, 400, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(cudaMemcpy(device + 1, host, 400, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host, device, 400, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(host, device, 400, cudaMemcpyDefault) == cudaSuccess);
  CHECK(cudaMemset(device, 0, 401) == cudaErrorInvalidValue);
  CHECK(cudaFree(device + 1) == cudaErrorInvalidValue);
  CHECK(cudaFree(device) == cudaSuccess);
  CHECK(cudaFree(device) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(device, host, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);

  const float values[4] = {1, 2, 3, 4};
  CHECK(cudaMemcpyToSymbol(factors, values, sizeof values) == cudaSuccess);
  const DeviceTensor<float, 1> out({4});
  launch("uses_symbols", uses_symbols, {.grid = 1, .block = 4}, out.data());
  for (Index i = 0; i < 4; ++i) CHECK(out.to_host()(i) == 7 * static_cast<float>(i + 1));
  (void)cudaGetLastError();
}

TEST_CASE("new device memory is no number") {
  const Tensor<float, 1> host = DeviceTensor<float, 1>({100}).to_host();
  for (Index i = 0; i < 100; ++i) CHECK(host(i) != host(i));
}

TEST_CASE("host code that follows a device pointer faults, and is told why") {
  const DeviceTensor<float, 1> memory(Tensor<float, 1>({100}));
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    for (const int output : {STDERR_FILENO, STDOUT_FILENO})
      dup2(ends[1], output);  // Catch2 has something to say as well
    const volatile float* const pointer = memory.data();
    _exit(pointer[3] == 0 ? 0 : 1);  // a fault before either
  }
  close(ends[1]);
  char text[512] = {};
  const ssize_t length = read(ends[0], text, sizeof text - 1);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(length > 0);
  CHECK_THAT(std::string(text), ContainsSubstring("host code follows a pointer to device memory"));
  CHECK_FALSE((WIFEXITED(status) && WEXITSTATUS(status) <= 1));
}

TEST_CASE("a kernel that fails leaves the emulator as it was") {
  const auto sum_of_blocks = [](unsigned blocks) {
    const DeviceTensor<int, 1> sum(Tensor<int, 1>({1}));
    launch("add_block_number", add_block_number, {.grid = blocks, .block = 64}, sum.data());
    return sum.to_host()(0);
  };
  CHECK_THROWS_AS(launch("waits_for_nobody", waits_for_nobody, {.grid = 1, .block = 32}),
                  KernelError);
  CHECK(sum_of_blocks(1000) == 1000 * 999 / 2);
  // Thrown, and caught above: that did not hide it.
  CHECK_THAT(simt::first_finding(), ContainsSubstring("kernel waits_for_nobody"));
  simt::reset_counters();
  CHECK(simt::first_finding().empty());
  const DeviceTensor<float, 1> out({1});
  CHECK_THROWS_WITH(launch("recurses", recurses, {.grid = 1, .block = 1}, out.data()),
                    ContainsSubstring("has more local variables than its stack holds"));
  CHECK_THROWS_WITH(
      launch("writes_dynamic_shared", writes_dynamic_shared,
             {.grid = 1, .block = 96, .shared_bytes = 256}),
      ContainsSubstring(
          "the block has 256 bytes of dynamic shared memory, which is what the "
          "launch's shared_bytes says. A thread block has 96 threads in this launch."));
  CHECK_THROWS_WITH(
      launch("throws_kernel", throws_kernel, {.grid = 1, .block = 32}),
      ContainsSubstring("The kernel threw an exception, which is impossible on a GPU: a message"));
  const DeviceTensor<int, 1> sum(Tensor<int, 1>({1}));
  simt::name_memory(sum.data(), "sum");
  CHECK_THROWS_WITH(
      launch("add_block_number", add_block_number, {.grid = 1, .block = 1}, sum.data() + 100),
      ContainsSubstring("not allocated, 396 bytes behind the end of the tensor sum"));
  CHECK(sum_of_blocks(10) == 45);
}

// A class' runner does in one process what host code asks for in another one, which may ask for
// anything.
std::string request;
simt::Answer keep(const std::string& text) {
  request = text;
  return {};
}

TEST_CASE("a request for a launch runs the kernel, and no other code") {
  const DeviceTensor<int, 1> sum(Tensor<int, 1>({1}));
  simt::ask_elsewhere(keep);
  launch("add_block_number", add_block_number, {.grid = 4, .block = 32}, sum.view().data());
  simt::ask_elsewhere(nullptr);
  CHECK(sum.to_host()(0) == 0);
  CHECK(simt::answer(request).error == cudaSuccess);
  CHECK(sum.to_host()(0) == 6);

  const auto kernel = reinterpret_cast<std::uintptr_t>(&add_block_number),
             other = reinterpret_cast<std::uintptr_t>(&std::abort);
  // The function is named twice: in the launch, and in what launch() calls it with.
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at + sizeof kernel <= request.size(); at += sizeof kernel)
    if (std::memcmp(&request[at], &kernel, sizeof kernel) == 0) places.push_back(at);
  REQUIRE(places.size() == 2);
  for (const auto& changed : {std::vector{places[0]}, {places[1]}, places}) {
    std::string forged = request;
    for (const std::size_t at : changed) std::memcpy(&forged[at], &other, sizeof other);
    CHECK_THROWS_AS(simt::answer(forged), Error);
  }
  for (const std::size_t length : {std::size_t{0}, places[1], request.size() - 1})
    CHECK_THROWS_AS(simt::answer(request.substr(0, length)), Error);
  CHECK_THROWS_AS(simt::answer(std::string(request.size(), '\x7f')), Error);
}

TEST_CASE("schedules are read from text") {
  CHECK(simt::parse_schedule("reverse").order == simt::Order::kReverse);
  CHECK(simt::parse_schedule("random:17").seed == 17);
  for (const char* const wrong :
       {"", "backward", "random", "random:", "random:x", "random:-1", "random:1234567890123456789"})
    CHECK_THROWS_WITH(simt::parse_schedule(wrong),
                      ContainsSubstring("it must be forward, reverse or random:SEED"));
}
