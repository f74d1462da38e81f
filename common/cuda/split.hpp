// A float32 number as two fp16 numbers, so that tensor cores can multiply it. Let the scale be a
// power of two. Then x * scale = high + low, where high is x * scale rounded to fp16, and low is
// the rest, rounded again. Together they keep 22 bits and the sign of low, one bit less than a
// float32. The sum high * high + high * low + low * high, three products of fp16 numbers, is a
// product of float32 numbers with a relative error of about 2^-22; low * low is smaller than that.
//
// fp16 has 5 bits of exponent, so the numbers of a tile share a scale, which brings the largest of
// them into [2^14, 2^15). Numbers below 2^-17 of the largest lose digits of `low`: the error of
// each is at most 2^-39 of the largest. A product has to be multiplied by the `factor`, 1 / scale.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "common/cuda/launch.hpp"
#include "common/cuda/warp.hpp"
#include "common/half.hpp"
#include "common/tensor.hpp"

namespace flash {

// ---- In registers -------------------------------------------------------------------------------

__device__ __forceinline__ std::uint32_t bits_of(__half2 x) {
  return reinterpret_cast<const std::uint32_t&>(x);
}

// Two numbers that were scaled before, split: each result holds a's part in its lower 16 bits. From
// 65520 on high is inf, and low NaN, as they are for a number that is not finite.
__device__ __forceinline__ void split(float a, float b, std::uint32_t& high, std::uint32_t& low) {
  const __half2 rounded = __floats2half2_rn(a, b);
  const float2 back = __half22float2(rounded);
  high = bits_of(rounded);
  low = bits_of(__floats2half2_rn(a - back.x, b - back.y));
}

// The power of two that brings `largest`, a finite number >= 0, into [2^14, 2^15); for numbers
// below 2^-99, the one for 2^-99.
__device__ __forceinline__ float scale_for(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23);
  return __uint_as_float(static_cast<unsigned>(268 - (exponent < 28 ? 28 : exponent)) << 23);
}
// 1 / scale, exactly.
__device__ __forceinline__ float factor_of(float scale) {
  return __uint_as_float((254u << 23) - __float_as_uint(scale));
}

// ---- A tensor -----------------------------------------------------------------------------------

// The planes of a (batch, heads, rows, columns) tensor in memory: (2, batch * heads, rows, columns)
// of Half, high first, rows and columns rounded up to whole tiles and filled with zeros. Behind
// them a factor for each tile: (batch * heads, tiles of rows, tiles of columns) of float.
template <int kRows, int kColumns>
struct SplitTensor {
  Half* planes = nullptr;
  Index heads = 0, rows = 0, columns = 0;

  SplitTensor() = default;
  SplitTensor(void* memory, const Shape<4>& shape)
      : planes(static_cast<Half*>(memory)),
        heads(shape[0] * shape[1]),
        rows((shape[2] + kRows - 1) / kRows * kRows),
        columns((shape[3] + kColumns - 1) / kColumns * kColumns) {}

  FLASH_HOST_DEVICE Index size() const { return heads * rows * columns; }  // of a plane
  FLASH_HOST_DEVICE Index tiles() const { return size() / (kRows * kColumns); }
  FLASH_HOST_DEVICE float* factors() const { return reinterpret_cast<float*>(planes + 2 * size()); }
  std::size_t bytes() const {
    return static_cast<std::size_t>(2 * size()) * sizeof(Half) +
           static_cast<std::size_t>(tiles()) * sizeof(float);
  }
  // For tensor_map(): planes are its batches.
  TensorView<Half, 4> view() const { return {planes, {2, heads, rows, columns}}; }
};

// Rows stay in their order.
struct SameRows {
  __device__ static constexpr int place(int row) { return row; }
};

inline constexpr int kSplitThreads = 256;

// A tile a block. Row r of a tile is stored as row Order::place(r). `in_fours`: x is read as
// float4.
template <int kRows, int kColumns, class Order>
__global__ void __launch_bounds__(kSplitThreads)
    split_kernel(TensorView<const float, 4> x, SplitTensor<kRows, kColumns> to, bool in_fours) {
  constexpr int kFours = kRows * kColumns / 4 / kSplitThreads;  // of a thread
  static_assert(kFours * 4 * kSplitThreads == kRows * kColumns && kColumns % 4 == 0);
  __shared__ float scratch[kSplitThreads / kWarpSize];
  const Index across = to.columns / kColumns, down = to.rows / kRows;
  const Index tile = blockIdx.x, row0 = tile / across % down * kRows,
              column0 = tile % across * kColumns;
  const Index head = tile / across / down, heads = x.extent(1);
  const float* const from = &x(head / heads, head % heads, 0, 0);
  const auto row_of = [](int i) {
    return (static_cast<int>(threadIdx.x) + i * kSplitThreads) / (kColumns / 4);
  };
  const int column = static_cast<int>(threadIdx.x) % (kColumns / 4) * 4;

  float4 values[kFours];
  FLASH_UNROLL
  for (int i = 0; i < kFours; ++i) {
    const Index row = row0 + row_of(i), first = column0 + column;
    const auto value = [&](int c) {
      return row < x.extent(2) && first + c < x.extent(3)
                 ? from[row * x.stride(2) + (first + c) * x.stride(3)]
                 : 0;
    };
    if (!in_fours)
      values[i] = {value(0), value(1), value(2), value(3)};
    else if (row < x.extent(2) && first < x.extent(3))
      values[i] = *reinterpret_cast<const float4*>(from + row * x.stride(2) + first);
    else
      values[i] = {0, 0, 0, 0};
  }

  float largest = 0;
  const auto count = [&](float value) {
    const float size = fabsf(value);
    if (size < INFINITY) largest = fmaxf(largest, size);
  };
  FLASH_UNROLL
  for (int i = 0; i < kFours; ++i) {
    count(values[i].x);
    count(values[i].y);
    count(values[i].z);
    count(values[i].w);
  }
  const float scale = scale_for(block_max<kSplitThreads>(largest, scratch));
  if (threadIdx.x == 0) to.factors()[tile] = factor_of(scale);

  FLASH_UNROLL
  for (int i = 0; i < kFours; ++i) {
    uint2 high, low;
    split(values[i].x * scale, values[i].y * scale, high.x, low.x);
    split(values[i].z * scale, values[i].w * scale, high.y, low.y);
    Half* const place = to.planes + (head * to.rows + row0 + Order::place(row_of(i))) * to.columns +
                        column0 + column;
    *reinterpret_cast<uint2*>(place) = high;
    *reinterpret_cast<uint2*>(place + to.size()) = low;
  }
}

// Enqueues the split of x to `to`, which was made for x's shape.
template <class Order = SameRows, int kRows, int kColumns>
void split_tensor(const TensorView<const float, 4>& x, const SplitTensor<kRows, kColumns>& to,
                  Stream stream) {
  if (to.size() == 0) return;
  const bool in_fours = x.extent(3) % 4 == 0 && rows_in_chunks(x, 4);
  launch("split", split_kernel<kRows, kColumns, Order>,
         {.grid = grid_size(to.tiles()), .block = kSplitThreads, .stream = stream}, x, to,
         in_fours);
}

}  // namespace flash
