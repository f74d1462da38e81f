// Prints how the tensor cores here add, and what is left of float32 on each route through them:
// the experiments of float32.md.
#include <cmath>
#include <cstdio>

#include "common/cuda/device.hpp"
#include "common/inputs.hpp"
#include "part3_flash_cuda/ladder/tensor_core_sums.hpp"

using namespace flash;
using namespace flash::tensor_core;

namespace {

void print_rounding() {
  std::printf("How one mma.sync adds. Each line is one sum, of the terms that it shows.\n\n");
  for (int bits = 22; bits <= 27; ++bits)
    std::printf("  1 + 2^-%d - 1            = %g x 2^-%d\n", bits,
                std::ldexp(sum(Format::kTf32, {1, std::ldexp(1.0f, -bits)}, {1, 1}, -1), bits),
                bits);
  std::printf("  1 + 1.75 x 2^-25 - 1     = %g x 2^-25\n",
              std::ldexp(sum(Format::kTf32, {1, 0x1.cp-25f}, {1, 1}, -1), 25));
  std::printf("  -1 - 1.75 x 2^-25 + 1    = %g x 2^-25\n",
              std::ldexp(sum(Format::kTf32, {-1, -0x1.cp-25f}, {1, 1}, 1), 25));
  std::printf("  1 + 1.75 x 2^-23         = 1 + %g x 2^-23\n",
              std::ldexp(sum(Format::kTf32, {1, 0x1.cp-23f}, {1, 1}) - 1, 23));
}

void print_drift() {
  std::printf(
      "\nThe sum of n products, weights in [0, 1) and values in [0.5, 1.5): its relative error\n\n"
      "       n   all inside   128 inside   32 inside    FFMA\n");
  for (const int n : {1024, 4096, 16384}) {
    Random random(1);
    std::vector<float> p(n), v(n);
    double exact = 0;
    float ffma = 0;
    for (int i = 0; i < n; ++i) {
      p[i] = rounded(Format::kTf32, static_cast<float>(random.uniform()));
      v[i] = rounded(Format::kTf32, static_cast<float>(0.5 + random.uniform()));
      exact += static_cast<double>(p[i]) * v[i];
      ffma = std::fma(p[i], v[i], ffma);
    }
    std::printf("  %6d", n);
    for (const int inside : {0, 128, 32})
      std::printf("   %10.1e", sum(Format::kTf32, p, v, 0, inside) / exact - 1);
    std::printf("   %7.1e\n", ffma / exact - 1);
  }
}

void print_planes(const char* what, Format format, float x, int count) {
  std::printf("  %-24s", what);
  float rest = x;
  for (const float plane : planes(format, x, count)) {
    std::printf(" %+.10g", plane);
    rest -= plane;
  }
  std::printf("\n  %-24s  left over: %.3g of it\n", "", rest / x);
}

void print_splits() {
  const float x = 3.14159274f, tiny = 1e-6f, scale = scale_for_half(tiny);
  std::printf("\nOne number as a sum of planes: pi as a float32, and 1e-6\n\n");
  print_planes("TF32, 2 planes", Format::kTf32, x, 2);
  print_planes("fp16, 2 planes", Format::kHalf, x, 2);
  print_planes("bf16, 2 planes", Format::kBFloat16, x, 2);
  print_planes("bf16, 3 planes", Format::kBFloat16, x, 3);
  print_planes("fp16, 1e-6", Format::kHalf, tiny, 2);
  std::printf("  scaled by 2^%d:\n", std::ilogb(scale));
  print_planes("fp16, 1e-6 scaled", Format::kHalf, tiny * scale, 2);
}

void print_products() {
  std::printf("\nA product of two numbers, the worst of 1000: its relative error\n\n");
  for (const Route& route : routes()) {
    Random random(2);
    double worst = 0;
    for (int n = 0; n < 1000; ++n) {
      const auto a = static_cast<float>(1 + random.uniform()),
                 b = static_cast<float>(1 + random.uniform());
      const auto [of_a, of_b] = factors(route, a, b);
      const double exact = static_cast<double>(a) * b;
      worst = std::fmax(worst, std::fabs(sum(route.format, of_a, of_b) / exact - 1));
    }
    std::printf("  %-9s %zu products: 2^%.1f\n", route.name, route.products.size(),
                std::log2(worst));
  }
}

}  // namespace

int main() {
  if (device::count() == 0) {
    std::printf(
        "No GPU here; build and run the same program on the emulator: "
        "tensor_core_sums_emulated\n");
    return 0;
  }
  if (device::compute_capability() < 80) {
    std::printf("This GPU has no tensor cores for TF32; they came with compute capability 8.0.\n");
    return 0;
  }
  std::printf("%s\n\n", device::is_emulated() ? "The emulator" : device::name().c_str());
  print_rounding();
  print_drift();
  print_splits();
  print_products();
}
