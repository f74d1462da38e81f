#include <bit>
#include <cmath>

#include "common/cuda/device_tensor.hpp"
#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/tensor_core.hpp"
#include "part3_flash_cuda/ladder/tensor_core_sums.hpp"

namespace flash::tensor_core {
namespace {

template <class T>
__device__ std::uint32_t pair_of(float low, float high) {
  return from_float<T>(low).bits | static_cast<std::uint32_t>(from_float<T>(high).bits) << 16;
}

// Row 0 of A is a, column 0 of B is b, and the rest is 0: lane t has columns "t" and "t + 4" of the
// row, of 16 bits "2t" and "2t + 1" and those 8 further on.
template <Format kFormat>
__global__ void sum_kernel(const float* a, const float* b, int count, float c, int inside,
                           float* result) {
  constexpr int kDepth = kFormat == Format::kTf32 ? 8 : 16;
  const int t = threadIdx.x;
  float total = 0, D[4] = {c, 0, 0, 0};
  for (int i = 0; i < count; i += kDepth) {
    std::uint32_t A[4] = {}, B[2] = {};
    if (t < 4) {
      FLASH_UNROLL
      for (int half = 0; half < 2; ++half) {
        if constexpr (kFormat == Format::kTf32) {
          A[2 * half] = __float_as_uint(a[i + t + 4 * half]);
          B[half] = __float_as_uint(b[i + t + 4 * half]);
        } else {
          using T = std::conditional_t<kFormat == Format::kHalf, Half, BFloat16>;
          const int k = i + 2 * t + 8 * half;
          A[2 * half] = pair_of<T>(a[k], a[k + 1]);
          B[half] = pair_of<T>(b[k], b[k + 1]);
        }
      }
    }
    if constexpr (kFormat == Format::kTf32) mma_m16n8k8_tf32(D, A, B);
    if constexpr (kFormat == Format::kHalf) mma_m16n8k16_half(D, A, B);
    if constexpr (kFormat == Format::kBFloat16) mma_m16n8k16_bfloat16(D, A, B);
    if (inside != 0 && (i + kDepth) % inside == 0) {
      total += D[0];
      D[0] = 0;
    }
  }
  if (t == 0) *result = total + D[0];
}

}  // namespace

float sum(Format format, std::vector<float> a, std::vector<float> b, float c, int inside) {
  for (auto* x : {&a, &b}) {
    for (float& value : *x) value = rounded(format, value);
    x->resize((x->size() + 15) / 16 * 16);
  }
  const auto count = static_cast<Index>(a.size());
  const DeviceTensor<float, 1> a_there({count}), b_there({count}), result({1});
  device::copy_to_device(a_there.data(), a.data(), a_there.bytes());
  device::copy_to_device(b_there.data(), b.data(), b_there.bytes());
  const auto kernel = format == Format::kTf32   ? sum_kernel<Format::kTf32>
                      : format == Format::kHalf ? sum_kernel<Format::kHalf>
                                                : sum_kernel<Format::kBFloat16>;
  launch("tensor_core_sum", kernel, {.grid = 1, .block = 32}, a_there.data(), b_there.data(),
         static_cast<int>(count), c, inside, result.data());
  device::synchronize();
  return result.to_host()(0);
}

float rounded(Format format, float x) {
  if (format == Format::kHalf) return Half(x);
  if (format == Format::kBFloat16) return BFloat16(x);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x1000) & ~0x1fffu);
}

std::vector<float> planes(Format format, float x, int count) {
  std::vector<float> result;
  for (int n = 0; n < count; ++n) {
    result.push_back(rounded(format, x));
    x -= result.back();
  }
  return result;
}

const std::vector<Route>& routes() {
  static const std::vector<Route> all{
      {"TF32", Format::kTf32, 1, {{0, 0}}, 0x1.01p-10},
      {"3xTF32", Format::kTf32, 2, {{1, 0}, {0, 1}, {0, 0}}, 0x1p-21},
      {"fp16 x 3", Format::kHalf, 2, {{1, 0}, {0, 1}, {0, 0}}, 0x1p-21},
      {"bf16 x 3", Format::kBFloat16, 2, {{1, 0}, {0, 1}, {0, 0}}, 0x1.01p-15},
      {"bf16 x 6",
       Format::kBFloat16,
       3,
       {{2, 0}, {0, 2}, {1, 1}, {1, 0}, {0, 1}, {0, 0}},
       0x1.01p-24},
  };
  return all;
}

std::pair<std::vector<float>, std::vector<float>> factors(const Route& route, float a, float b,
                                                          float scale) {
  const std::vector<float> a_planes = planes(route.format, a * scale, route.planes),
                           b_planes = planes(route.format, b * scale, route.planes);
  std::pair<std::vector<float>, std::vector<float>> result;
  for (const auto& [of_a, of_b] : route.products) {
    result.first.push_back(a_planes[of_a]);
    result.second.push_back(b_planes[of_b]);
  }
  return result;
}

float scale_for_half(float x) { return std::ldexp(1.0f, 14 - std::ilogb(x)); }

}  // namespace flash::tensor_core
