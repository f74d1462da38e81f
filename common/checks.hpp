// Checks of arguments, shared by every implementation of a contract. Each throws one clear line; none is ever compiled out.
#pragma once

#include <string>

#include "common/tensor.hpp"

namespace flash {

// Throws ArgumentError unless value >= least: "block_1 is 0; it must be at least 1".
FLASH_EXPORT void check_at_least(const std::string& argument, Index value, Index least);

// Throws ArgumentError unless least <= value <= most.
FLASH_EXPORT void check_between(const std::string& argument, Index value, Index least, Index most);

// -1 becomes the last axis. Throws ArgumentError unless -1 <= axis < rank.
FLASH_EXPORT int checked_axis(int axis, int rank);

// Throws ShapeError unless x and out have the same shape, (rows, columns), both at least 1.
FLASH_EXPORT void check_elementwise_shapes(const Shape<2>& x, const Shape<2>& out);

// Throws ShapeError unless x (batch, d1, d2), v (batch, d2, d3) and out (batch, d1, d3) fit, and every extent but d2 is at
// least 1.
FLASH_EXPORT void check_softmax_matmul_shapes(const Shape<3>& x, const Shape<3>& v, const Shape<3>& out);

}  // namespace flash
