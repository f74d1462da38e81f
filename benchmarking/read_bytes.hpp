// A kernel that reads memory and does nothing else: what a pass that is bound by memory can reach.
#pragma once

#include <cstddef>

#include "common/export.hpp"

namespace flash {

// Reads `bytes` bytes, a multiple of 16, at each of two addresses on the device, and may store 4
// bytes at `sum`. Enqueues on the default stream and does not wait. Throws CudaError.
FLASH_EXPORT void read_bytes(const void* first, const void* second, std::size_t bytes, void* sum);

}  // namespace flash
