// The part of the emulated runtime's state that a launch needs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "emulator/headers/cuda_runtime_api.h"
#include "emulator/headers/device/kernel_call.hpp"

namespace flash::simt {

// For host_calls() (simt.hpp).
void note_enqueued(const std::string& what, const void* stream);
void note_wait(const char* what);
void note_launch(const KernelCall& call);

// What cudaMemset() does.
cudaError_t fill(void* memory, int value, std::size_t bytes);

// Returns `error`, and makes it what cudaGetLastError() gives.
cudaError_t result(cudaError_t error);

// The dynamic shared memory that cudaFuncSetAttribute() has allowed `function`; nothing if it was
// not called.
std::optional<std::size_t> allowed_dynamic_shared(const void* function);

}  // namespace flash::simt
