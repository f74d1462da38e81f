// Kernels and CUDA calls for runtime_test.cpp. Functions ..._errors() return what is wrong, or "".
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "common/export.hpp"

namespace flash::runtime_kernels {

// The name of the error that a launch of this size gives.
FLASH_EXPORT std::string launch_error(std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
                                      std::size_t shared_bytes);
FLASH_EXPORT std::string copy_errors();
FLASH_EXPORT std::string shared_memory_errors();
FLASH_EXPORT std::string streams_and_events();

FLASH_EXPORT void too_little_shared_memory();
FLASH_EXPORT void deadlock();
FLASH_EXPORT void stack_overflow();
FLASH_EXPORT void throws();
FLASH_EXPORT void large_array();  // a __shared__ one, larger than CUDA allows
// Transposes n x n numbers in tiles of 32 x 32; throws Error when the result is wrong.
FLASH_EXPORT void transpose(int n);
// 0 + 1 + ... + blocks - 1, a block a term.
FLASH_EXPORT int sum_of_blocks(int blocks);

}  // namespace flash::runtime_kernels
