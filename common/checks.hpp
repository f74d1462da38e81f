// Checks of arguments, shared by every implementation of a contract. Each throws one clear line;
// none is ever compiled out.
#pragma once

#include <string>

#include "common/tensor.hpp"

namespace flash {

// Throws ArgumentError unless value >= least: "block_1 is 0; it must be at least 1".
FLASH_EXPORT void check_at_least(const std::string& argument, Index value, Index least);

// Throws ArgumentError unless least <= value <= most.
FLASH_EXPORT void check_between(const std::string& argument, Index value, Index least, Index most);

// Why a pass does not take `value`: "head_dim is 300; it must be at most 256". "" when value <=
// most.
FLASH_EXPORT std::string why_above(const std::string& name, Index value, Index most);

// Throws Unsupported with `why`, unless that is empty.
FLASH_EXPORT void check_supported(const std::string& why);

// -1 becomes the last axis. Throws ArgumentError unless -1 <= axis < rank.
FLASH_EXPORT int checked_axis(int axis, int rank);

// Throws ShapeError unless x and out have the same shape, (rows, columns), both at least 1.
FLASH_EXPORT void check_elementwise_shapes(const Shape<2>& x, const Shape<2>& out);

}  // namespace flash
