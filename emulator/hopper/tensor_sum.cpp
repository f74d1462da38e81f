// Implements tensor_sum.hpp so that the compiler makes vector instructions of it: a wgmma has up
// to 16384 of these sums.
#include "emulator/headers/device/tensor_sum.hpp"

#include <bit>
#include <cstdint>

namespace flash::simt {
namespace {

constexpr int kColumns = 8;  // at a time
constexpr std::uint32_t kExponent = 0x7f800000u;

float plain_sum(float d, const float* a, const float* b, int columns, int depth) {
  for (int k = 0; k < depth; ++k) d += a[k] * b[k * columns];
  return d;
}

// Columns 0 to 7 of a row.
void add_row(float* d, const float* a, const float* b, int columns, int depth) {
  float terms[kMostDepth + 1][kColumns];
  for (int n = 0; n < kColumns; ++n) terms[0][n] = d[n];
  for (int k = 0; k < depth; ++k)
    for (int n = 0; n < kColumns; ++n) terms[k + 1][n] = a[k] * b[k * columns + n];

  std::uint32_t largest[kColumns] = {};
  for (int k = 0; k <= depth; ++k)
    for (int n = 0; n < kColumns; ++n) {
      const std::uint32_t exponent = std::bit_cast<std::uint32_t>(terms[k][n]) & kExponent;
      largest[n] = largest[n] > exponent ? largest[n] : exponent;
    }
  std::uint32_t overall = 0;
  for (int n = 0; n < kColumns; ++n) overall = overall > largest[n] ? overall : largest[n];
  if (overall == kExponent) {  // infinities and NaN go through any addition
    for (int n = 0; n < kColumns; ++n) d[n] = plain_sum(d[n], a, b + n, columns, depth);
    return;
  }

  // In units of 2^-25 of the largest the addends are below 2^26, so that 17 of them fit into 31
  // bits. The least unit is 2^-127, since factors are floats: what is below it is lost.
  constexpr std::uint32_t kLeast = 25u << 23;
  float factor[kColumns];
  double unit[kColumns];
  for (int n = 0; n < kColumns; ++n) {
    const std::uint32_t exponent = largest[n] > kLeast ? largest[n] : kLeast;
    factor[n] = std::bit_cast<float>(((127u + 127u + 25u) << 23) - exponent);
    unit[n] = std::bit_cast<double>((std::uint64_t{exponent >> 23} + 1023 - 127 - 25) << 52);
  }
  std::int32_t sum[kColumns] = {};
  for (int k = 0; k <= depth; ++k)
    for (int n = 0; n < kColumns; ++n) sum[n] += static_cast<std::int32_t>(terms[k][n] * factor[n]);
  constexpr std::uint64_t kLost = (std::uint64_t{1} << (52 - 23)) - 1;
  for (int n = 0; n < kColumns; ++n) {
    const auto bits = std::bit_cast<std::uint64_t>(static_cast<double>(sum[n]) * unit[n]);
    d[n] = static_cast<float>(std::bit_cast<double>(bits & ~kLost));
  }
}

}  // namespace

void add_products(float* d, const float* a, const float* b, int rows, int columns, int depth) {
  for (int row = 0; row < rows; ++row)
    for (int n = 0; n < columns; n += kColumns)
      add_row(d + row * columns + n, a + row * depth, b + n, columns, depth);
}

}  // namespace flash::simt
