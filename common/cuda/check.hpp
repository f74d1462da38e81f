// Checked CUDA calls: FLASH_CUDA_CHECK(cudaMemcpy(...)) throws CudaError, or OutOfMemory, with the
// call, file:line and CUDA's text.
#pragma once

#include <cuda_runtime_api.h>

#include "common/error.hpp"
#include "common/stream.hpp"

namespace flash::device {

// Clears CUDA's last error, so that the next call does not report it again.
[[noreturn]] FLASH_EXPORT void throw_cuda_error(cudaError_t error, const char* call,
                                                const char* file, int line);

inline void check(cudaError_t error, const char* call, const char* file, int line) {
  if (error != cudaSuccess) throw_cuda_error(error, call, file, line);
}

inline cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace flash::device

#define FLASH_CUDA_CHECK(call) ::flash::device::check((call), #call, __FILE__, __LINE__)
