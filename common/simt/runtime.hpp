// What the launch needs to know of the emulated runtime's state.
#pragma once

#include <cstddef>

namespace flash::simt {

// Values of cudaError_t, for code that does not include CUDA's names.
inline constexpr int kSuccess = 0, kErrorInvalidValue = 1, kErrorInvalidConfiguration = 9, kErrorLaunchFailure = 719;

// Makes `error` what cudaGetLastError() gives, and returns it.
int set_last_error(int error);

// What `function` may have: 48 KiB, or what cudaFuncSetAttribute() has allowed it.
std::size_t dynamic_shared_limit(const void* function);

}  // namespace flash::simt
