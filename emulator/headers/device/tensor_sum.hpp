// How a tensor core adds: for each element of D the products of one step and the old D in one sum.
//
// Each addend is cut off at 2^-25 of the largest one's power of two, the sum of what is left is
// exact, and the result is cut off to the 24 bits of a float: both towards zero. (Measured on
// Hopper: a sum of many steps drifts towards zero.)
#pragma once

#include "common/export.hpp"

namespace flash::simt {

inline constexpr int kMostDepth = 16;  // products in a sum

// d (rows, columns) += a (rows, depth) b (depth, columns), row by row. The factors have at most 11
// significant bits, so that each product is a float; `columns` is a multiple of 8, `depth` at most
// kMostDepth.
FLASH_EXPORT void add_products(float* d, const float* a, const float* b, int rows, int columns,
                               int depth);

}  // namespace flash::simt
