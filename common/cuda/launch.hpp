// Launching a kernel, and dynamic shared memory: the two things of CUDA that plain C++ cannot say,
// wrapped here once, for nvcc and (FLASH_SIMT) for the emulator.
//
//   launch("fused_softmax_matmul", kernel<16, 16>,
//          {.grid = blocks, .block = threads, .shared_bytes = bytes, .stream = stream}, x, v, out);
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <tuple>
#include <utility>

#include "common/cuda/check.hpp"
#include "common/stream.hpp"
#include "common/tensor.hpp"

// Unrolls the loop that follows, wholly or `n` times. g++ does not know #pragma unroll.
#ifdef __CUDACC__
#define FLASH_PRAGMA(text) _Pragma(#text)
#define FLASH_UNROLL _Pragma("unroll")
#define FLASH_UNROLL_BY(n) FLASH_PRAGMA(unroll n)
#else
#define FLASH_UNROLL
#define FLASH_UNROLL_BY(n)
#endif

// Declares `name`, a T* to the block's dynamic shared memory, aligned for 16-byte access. Once a
// kernel.
#ifdef FLASH_SIMT
#define FLASH_DYNAMIC_SHARED(T, name) \
  T* const name = static_cast<T*>(::flash::simt::dynamic_shared_memory())
#else
#define FLASH_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char flash_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(flash_dynamic_shared)
#endif

namespace flash {

struct LaunchConfig {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;  // dynamic shared memory of a block
  Stream stream{};
  // The kernel may begin while the one before it in the stream still runs, and calls
  // wait_for_kernel_before().
  bool begins_early = false;
};

// In a kernel that begins early, every thread that reads or writes device memory first calls
// wait_for_kernel_before(). It waits until the kernel before has ended, and all kernels before that
// one. The kernel before may call let_next_kernel_begin(); without that the next one begins when
// the last block of the kernel before has ended. On GPUs before Hopper both do nothing. The
// emulator runs one kernel after the other, and does not find a missing wait.
#ifdef FLASH_SIMT
inline void wait_for_kernel_before() {}
inline void let_next_kernel_begin() {}
#else
__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}
#endif

// A one-dimensional grid of `blocks` blocks. Throws Unsupported above CUDA's limit of 2^31 - 1.
FLASH_EXPORT dim3 grid_size(Index blocks);

namespace device {

// Lets `kernel` have `bytes` of dynamic shared memory: above 48 KiB a kernel has to be asked.
// Throws Unsupported when the GPU does not have as much for one block.
FLASH_EXPORT void reserve_shared_memory(const void* kernel, const std::string& name,
                                        std::size_t bytes);

// Throws CudaError if the launch that just happened was refused.
FLASH_EXPORT void check_launch(cudaError_t error, const std::string& name,
                               const LaunchConfig& config);

}  // namespace device

// Enqueues kernel<<<grid, block, shared_bytes, stream>>>(arguments...) and checks it. `name` is
// what error messages call it. Throws Unsupported when the shared memory does not fit, CudaError
// when the launch is refused.
template <class... Parameters, class... Arguments>
void launch(const std::string& name, void (*kernel)(Parameters...), const LaunchConfig& config,
            Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments),
                "the kernel takes another number of arguments");
  device::reserve_shared_memory(reinterpret_cast<const void*>(kernel), name, config.shared_bytes);
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
#ifdef FLASH_SIMT
  const auto error =
      static_cast<cudaError_t>(simt::launch(name.c_str(), kernel, config.grid, config.block,
                                            config.shared_bytes, config.stream.handle, values));
#else
  const cudaError_t error = std::apply(
      [&](Parameters&... value) {
        void* pointers[] = {const_cast<void*>(static_cast<const void*>(&value))...};
        cudaLaunchAttribute early{};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t launched{};
        launched.gridDim = config.grid;
        launched.blockDim = config.block;
        launched.dynamicSmemBytes = config.shared_bytes;
        launched.stream = device::native(config.stream);
        launched.attrs = &early;
        launched.numAttrs = config.begins_early;
        return cudaLaunchKernelExC(&launched, reinterpret_cast<const void*>(kernel), pointers);
      },
      values);
#endif
  device::check_launch(error, name, config);
}

}  // namespace flash
