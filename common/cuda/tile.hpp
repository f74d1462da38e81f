// Tiles for kernels that multiply small matrices: from a head of a tensor to shared memory, from
// there to the registers of lanes that share rows or columns. All of it is inlined, so that the
// emulator's findings name the line of the kernel that uses it.
#pragma once

#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/place.hpp"
#include "common/cuda/warp.hpp"
#include "common/tensor.hpp"

namespace flash {

// ---- Values that neighbouring lanes share -------------------------------------------------------

template <int N>
struct alignas(4 * N) Floats {
  float value[N];
};

// The lane's values from memory, and back.
template <int kLanes, int N>
__device__ __forceinline__ void read(float (&values)[N], const float* memory, int lane) {
  FLASH_UNROLL
  for (int n = 0; n < N; n += kVector<N>) {
    const auto vector =
        *reinterpret_cast<const Floats<kVector<N>>*>(memory + place<N, kLanes>(lane, n));
    FLASH_UNROLL
    for (int i = 0; i < kVector<N>; ++i) values[n + i] = vector.value[i];
  }
}

template <int kLanes, int N>
__device__ __forceinline__ void write(float* memory, const float (&values)[N], int lane) {
  FLASH_UNROLL
  for (int n = 0; n < N; n += kVector<N>) {
    Floats<kVector<N>> vector;
    FLASH_UNROLL
    for (int i = 0; i < kVector<N>; ++i) vector.value[i] = values[n + i];
    *reinterpret_cast<Floats<kVector<N>>*>(memory + place<N, kLanes>(lane, n)) = vector;
  }
}

// ---- Tiles from device memory -------------------------------------------------------------------

// One head of a tensor.
template <class T>
struct Head {
  T* data;
  Index rows, columns, row_stride, column_stride;

  __device__ Head(const TensorView<T, 4>& x, Index b, Index h)
      : Head(&x(b, h, 0, 0), x.extent(2), x.extent(3), x.stride(2), x.stride(3)) {}
  __device__ Head(T* first, Index row_count, Index column_count, Index from_row_to_row,
                  Index from_column_to_column)
      : data(first),
        rows(row_count),
        columns(column_count),
        row_stride(from_row_to_row),
        column_stride(from_column_to_column) {}
  __device__ T& operator()(Index row, Index column) const {
    return data[row * row_stride + column * column_stride];
  }
  __device__ Head transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

// Calls put(row, column, value) for each element of a tile of kTileRows x kTileColumns, which
// begins at (row0, column0) of the head. `row` and `column` count from there; `value` is 0 where
// the head has no such element. All kThreads threads of the block call it together, and share the
// elements. A warp reads 32 consecutive bytes of each row, one sector.
template <int kTileRows, int kTileColumns, int kThreads, class T, class Put>
__device__ __forceinline__ void load_tile(const Head<const T>& head, Index row0, Index column0,
                                          Put put) {
  constexpr int kAcross = 32 / sizeof(T), kDown = kThreads / kAcross;
  const int first_row = threadIdx.x / kAcross, first_column = threadIdx.x % kAcross;
  const Index rows = head.rows - row0, columns = head.columns - column0;
  FLASH_UNROLL_BY(kTileColumns / kAcross <= 8 ? 2 : 1)
  for (int row = first_row; row < kTileRows; row += kDown) {
    const T* const from = &head(row0 + row, column0);
    const auto load = [&](int column, Index place) {
      put(row, column, row < rows && column < columns ? to_float(from[place]) : 0);
    };
    if (head.column_stride == 1) {
      FLASH_UNROLL_BY(16)  // loads in flight
      for (int column = first_column; column < kTileColumns; column += kAcross)
        load(column, column);
    } else {
      FLASH_UNROLL_BY(
          1)  // unrolled, the 16 multiples of the stride would stay in registers from tile to tile
      for (int column = first_column; column < kTileColumns; column += kAcross)
        load(column, column * head.column_stride);
    }
  }
}

}  // namespace flash
