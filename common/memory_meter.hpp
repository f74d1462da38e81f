// Counts what C++ code allocates on the host: now, at its peak, and with a cap.
//
// Linking the library flash_memory_meter into a program replaces operator new and delete, also in
// its shared libraries, and with glibc malloc and free as well. With another C library, and under
// the sanitizers, direct calls of malloc are not counted. Calls of mmap never are.
#pragma once

#include <cstddef>
#include <optional>

#include "common/export.hpp"

namespace flash::host_memory {

// Bytes in use now, and the most in use at one time since reset_peak(). A block counts with the
// size that the allocator has really set aside.
FLASH_EXPORT std::size_t in_use() noexcept;
FLASH_EXPORT std::size_t peak() noexcept;
FLASH_EXPORT void reset_peak() noexcept;

// From here on an allocation that would bring in_use() above the limit throws std::bad_alloc.
// Nothing means no limit.
FLASH_EXPORT void set_limit(std::optional<std::size_t> bytes) noexcept;

// The most that was allocated, beyond what was in use before, while `call` ran.
template <class Call>
std::size_t extra_bytes_of(Call&& call) {
  const std::size_t before = in_use();
  reset_peak();
  call();
  return peak() - before;
}

}  // namespace flash::host_memory
