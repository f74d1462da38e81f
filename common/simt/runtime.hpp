// The part of the emulated runtime's state that a launch needs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace flash::simt {

// Values of cudaError_t, for code that does not include CUDA's names.
inline constexpr int kSuccess = 0, kErrorInvalidValue = 1, kErrorInvalidConfiguration = 9,
                     kErrorLaunchFailure = 719;

// For host_calls() (simt.hpp).
void note_enqueued(const std::string& what, const void* stream);

// Makes `error` what cudaGetLastError() gives, and returns it.
int set_last_error(int error);

// The dynamic shared memory that cudaFuncSetAttribute() has allowed `function`; nothing if it was
// not called.
std::optional<std::size_t> allowed_dynamic_shared(const void* function);

}  // namespace flash::simt
