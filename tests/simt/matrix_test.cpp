// Every way to multiply matrices in a warp (matrix_kernels.cu), on the GPU and on the emulator.
#include "harness/needs_gpu.hpp"
#include "simt/matrix_kernels.hpp"
#include "simt/products.hpp"

using namespace flash;
using harness::skipped_without_gpu;
using matrix_kernels::Way;

TEST_CASE("products of integers are exact, and others as exact as sums in float32 are") {
  if (skipped_without_gpu()) return;
  for (const Way& way : matrix_kernels::ways()) {
    products::check(way, way.m, products::integers(way.m, way.k, 1),
                    products::integers(way.k, way.n, 2), products::integers(way.m, way.n, 3), 0);
    // Tensor cores cut off what a sum of 16 aligned terms drops below 2^-24 of the largest: 2 u a
    // term, and u for c.
    products::check_random(way, way.m, 2 * 0x1p-24 * static_cast<double>(way.k + 1), 20);
  }
}

TEST_CASE("the emulator's mma.sync rounds as Hopper's does") {
  if (skipped_without_gpu() || !device::is_emulated()) return;  // older GPUs keep fewer bits
  for (const Way& way : matrix_kernels::ways())
    if (way.name.starts_with("mma.sync")) products::check_truncation(way, way.m);
}
