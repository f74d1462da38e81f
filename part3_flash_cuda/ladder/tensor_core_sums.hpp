// Small experiments with the tensor cores of the current device, or of the emulator: how they add,
// and what becomes of a product of two float32 numbers that are cut in planes. float32.md explains
// them; tests/part3/tensor_core_sums_test.cpp makes them.
#pragma once

#include <utility>
#include <vector>

#include "common/export.hpp"

namespace flash::tensor_core {

enum class Format { kTf32, kHalf, kBFloat16 };

// c + the sum of a[i] b[i], by mma.sync, which adds up 8 products of TF32 or 16 of the others. The
// factors are rounded to the format first. A sum of `inside` products begins at 0, stays in the
// tensor core, and is then added to the others by FADD; c is in the first. With inside = 0 there is
// one sum.
FLASH_EXPORT float sum(Format format, std::vector<float> a, std::vector<float> b, float c = 0,
                       int inside = 0);

// ---- Without a device ---------------------------------------------------------------------------

// x rounded to the format: to the nearest.
FLASH_EXPORT float rounded(Format format, float x);

// x as a sum: plane 0 is x rounded, plane 1 what is left of x rounded, and so on.
FLASH_EXPORT std::vector<float> planes(Format format, float x, int count);

// A way to multiply float32 numbers on tensor cores.
struct Route {
  const char* name;
  Format format;
  int planes;
  std::vector<std::pair<int, int>> products;  // of which plane of a by which of b; small ones first
  double bound;                               // of what is wrong with a b, beside |a b|
};
FLASH_EXPORT const std::vector<Route>& routes();

// The factors whose products are a b. A half has a small range: `scale`, a power of two, brings the
// numbers there, and has to be divided out of the sum twice.
FLASH_EXPORT std::pair<std::vector<float>, std::vector<float>> factors(const Route& route, float a,
                                                                       float b, float scale = 1);

// The power of two that brings x to 2^14 or between it and 2^15.
FLASH_EXPORT float scale_for_half(float x);

}  // namespace flash::tensor_core
