// Rung 1: a register tile.
//
// What changed since the solution: there, each multiply-add loads its accumulator o(i, c) from
// cache and stores it again, and each value of V serves one row. Here a tile of kRows x kColumns
// accumulators stays in registers while a whole block of keys streams past, so that a value of V,
// once loaded, serves kRows rows. P is stored key by key, so that the kRows weights of a key lie
// side by side. Rows and columns are padded with zeros to whole tiles: the inner loop has no tails.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/registry.hpp"

namespace flash::fused_1 {
namespace {

constexpr Index kLanes = 8;
// Two instructions' worth where the processor has only SSE.
using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;

constexpr Index kBlock1 = 32, kBlock2 = 32;  // rows and keys that are worked on at a time

constexpr Index kRows = 4;
constexpr Index kVectors = 2;
// 4 x 2 accumulators, 2 values of V, 1 weight: 11 of AVX2's 16 registers.
constexpr Index kColumns = kVectors * kLanes;

Index round_up(Index value, Index multiple) { return (value + multiple - 1) / multiple * multiple; }

// o (kRows x kColumns, rows `width` apart) += p^T v over `keys` keys; p's keys are `p_step` apart,
// v's `width`.
void multiply_tile(const float* p, Index p_step, const float* v, float* o, Index width,
                   Index keys) {
  Lanes acc[kRows][kVectors];
  for (Index r = 0; r < kRows; ++r)
    for (Index n = 0; n < kVectors; ++n)
      acc[r][n] = *reinterpret_cast<const Lanes*>(o + r * width + n * kLanes);
  for (Index j = 0; j < keys; ++j)
    for (Index r = 0; r < kRows; ++r)
      for (Index n = 0; n < kVectors; ++n)
        acc[r][n] +=
            p[j * p_step + r] * *reinterpret_cast<const Lanes*>(v + j * width + n * kLanes);
  for (Index r = 0; r < kRows; ++r)
    for (Index n = 0; n < kVectors; ++n)
      *reinterpret_cast<Lanes*>(o + r * width + n * kLanes) = acc[r][n];
}

void fused_softmax_matmul(const SoftmaxMatmul<float>& pass) {
  const auto [x, v, out, stream] = pass;
  const auto [batch, d1, d2, d3] = check_softmax_matmul(pass);
  const Index block_1 = std::min(kBlock1, d1), block_2 = std::clamp<Index>(d2, 1, kBlock2);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();

  const Index padded_rows = round_up(block_1, kRows), width = round_up(d3, kColumns);
  Tensor<float, 1> m({block_1}), l({block_1});
  Tensor<float, 2> p({block_2, padded_rows});  // key by key; the padding stays 0
  Tensor<float, 2> v_block({block_2, width});  // the padding stays 0
  Tensor<float, 2> o({padded_rows, width});

  for (Index b = 0; b < batch; ++b)
    for (Index i0 = 0; i0 < d1; i0 += block_1) {
      const Index rows = std::min(block_1, d1 - i0);
      std::fill_n(m.data(), block_1, -kInfinity);
      std::fill_n(l.data(), block_1, 0.0f);
      std::fill_n(o.data(), o.size(), 0.0f);

      for (Index j0 = 0; j0 < d2; j0 += block_2) {
        const Index keys = std::min(block_2, d2 - j0);
        for (Index j = 0; j < keys; ++j)
          for (Index c = 0; c < d3; ++c) v_block(j, c) = v(b, j0 + j, c);

        for (Index i = 0; i < rows; ++i) {
          float m_new = m(i);
          for (Index j = 0; j < keys; ++j) m_new = std::fmax(m_new, x(b, i0 + i, j0 + j));
          const float reference = m_new == -kInfinity ? 0 : m_new;
          const float alpha = std::exp(m(i) - reference);
          float tile_sum = 0;
          for (Index j = 0; j < keys; ++j)
            tile_sum += p(j, i) = std::exp(x(b, i0 + i, j0 + j) - reference);
          l(i) = l(i) * alpha + tile_sum;
          m(i) = m_new;
          for (Index c = 0; c < d3; ++c) o(i, c) *= alpha;
        }

        for (Index i = 0; i < rows; i += kRows)
          for (Index c = 0; c < width; c += kColumns)
            multiply_tile(&p(0, i), padded_rows, &v_block(0, c), &o(i, c), width, keys);
      }

      for (Index i = 0; i < rows; ++i)
        for (Index c = 0; c < d3; ++c) out(b, i0 + i, c) = l(i) == 0 ? 0 : o(i, c) / l(i);
    }
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.softmax_matmul.add({.name = name, .run = {.float32 = fused_softmax_matmul}});
}

}  // namespace flash::fused_1
