// The CUDA runtime's host functions that this course uses, under CUDA's names and with CUDA's error codes, for the emulator.
// What is not here does not compile; that is on purpose.
#pragma once

#include <cstddef>

#include "common/export.hpp"
#include "common/simt/device/vector_types.hpp"

#define CUDART_VERSION 12000
#define __host__
#define __device__
#define __global__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__  // nothing: libstdc++ writes __attribute__((__noinline__)), which has to stay one
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidSymbol = 13,
  cudaErrorInvalidDevicePointer = 17,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorUnknown = 999,
};

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};

enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxRegistersPerMultiprocessor = 82,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

struct cudaFuncAttributes {
  std::size_t sharedSizeBytes;  // of the kernel's own __shared__ variables
  int maxThreadsPerBlock;
  int maxDynamicSharedSizeBytes;
};

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  std::size_t sharedMemPerBlock;
  std::size_t sharedMemPerBlockOptin;
  std::size_t sharedMemPerMultiprocessor;
  int regsPerBlock;
  int warpSize;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int major, minor;
  int multiProcessorCount;
  int maxThreadsPerMultiProcessor;
  int l2CacheSize;
};

enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaMemPool_t = struct CUmemPoolHandle_st*;

inline constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;

#define FLASH_SIMT_API FLASH_EXPORT cudaError_t
FLASH_SIMT_API cudaGetDeviceCount(int* count);
FLASH_SIMT_API cudaGetDevice(int* device);
FLASH_SIMT_API cudaSetDevice(int device);
FLASH_SIMT_API cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
FLASH_SIMT_API cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
FLASH_SIMT_API cudaDeviceSynchronize();
FLASH_SIMT_API cudaRuntimeGetVersion(int* version);
FLASH_SIMT_API cudaDriverGetVersion(int* version);

FLASH_SIMT_API cudaGetLastError();
FLASH_SIMT_API cudaPeekAtLastError();
FLASH_EXPORT const char* cudaGetErrorString(cudaError_t error);
FLASH_EXPORT const char* cudaGetErrorName(cudaError_t error);

FLASH_SIMT_API cudaMalloc(void** memory, std::size_t bytes);
FLASH_SIMT_API cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t stream);
FLASH_SIMT_API cudaMallocFromPoolAsync(void** memory, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream);
FLASH_SIMT_API cudaMallocHost(void** memory, std::size_t bytes);
FLASH_SIMT_API cudaFree(void* memory);
FLASH_SIMT_API cudaFreeAsync(void* memory, cudaStream_t stream);
FLASH_SIMT_API cudaFreeHost(void* memory);
FLASH_SIMT_API cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes);
FLASH_SIMT_API cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
FLASH_SIMT_API cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
FLASH_SIMT_API cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t bytes_to_keep);

FLASH_SIMT_API cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
FLASH_SIMT_API cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = nullptr);
FLASH_SIMT_API cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                            std::size_t height, cudaMemcpyKind kind);
FLASH_SIMT_API cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                                 std::size_t height, cudaMemcpyKind kind, cudaStream_t stream = nullptr);
FLASH_SIMT_API cudaMemset(void* memory, int value, std::size_t bytes);
FLASH_SIMT_API cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream = nullptr);

FLASH_SIMT_API cudaStreamCreate(cudaStream_t* stream);
FLASH_SIMT_API cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
FLASH_SIMT_API cudaStreamDestroy(cudaStream_t stream);
FLASH_SIMT_API cudaStreamSynchronize(cudaStream_t stream);
FLASH_SIMT_API cudaStreamQuery(cudaStream_t stream);
FLASH_SIMT_API cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);

FLASH_SIMT_API cudaEventCreate(cudaEvent_t* event);
FLASH_SIMT_API cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
FLASH_SIMT_API cudaEventDestroy(cudaEvent_t event);
FLASH_SIMT_API cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
FLASH_SIMT_API cudaEventSynchronize(cudaEvent_t event);
FLASH_SIMT_API cudaEventQuery(cudaEvent_t event);
// Host time between the two; it says nothing about a GPU.
FLASH_SIMT_API cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

FLASH_SIMT_API cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value);
FLASH_SIMT_API cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function);
#undef FLASH_SIMT_API

template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <class T>
cudaError_t cudaMallocAsync(T** memory, std::size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(reinterpret_cast<void**>(memory), bytes, stream);
}
template <class T>
cudaError_t cudaMallocHost(T** memory, std::size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(memory), bytes);
}
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}

// A __constant__ or __device__ variable is an ordinary one here.
template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, std::size_t bytes, std::size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyHostToDevice) {
  if (offset > sizeof symbol || bytes > sizeof symbol - offset) return cudaErrorInvalidValue;
  __builtin_memcpy(const_cast<char*>(reinterpret_cast<const char*>(&symbol)) + offset, from, bytes);
  return cudaSuccess;
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, std::size_t bytes, std::size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  if (offset > sizeof symbol || bytes > sizeof symbol - offset) return cudaErrorInvalidValue;
  __builtin_memcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes);
  return cudaSuccess;
}
