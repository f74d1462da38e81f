// What the kernels of hopper_mistakes.cu and hopper_right.cu share: tiles of 64 rows of 64 numbers
// of 16 bits, as TMA and wgmma have them. Inlined from here, so that findings name the kernel's
// lines.
#pragma once

#include "common/cuda/half.hpp"
#include "common/cuda/shared_address.hpp"
#include "common/cuda/tensor_core.hpp"
#include "common/cuda/tma.hpp"
#include "common/cuda/warpgroup.hpp"
#include "common/cuda/wgmma.hpp"
#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {

inline constexpr int kTile = 64 * 64, kTileBytes = 128 * 64;  // numbers, bytes

// Device memory of so many rows of 64: 0, 1, 2, ... modulo 512, or zeros that are a result, or
// nothing. A kernel gets it as a tensor map, which may be wrong about the number of rows.
struct Rows {
  Index count;
  int box_rows = 64;
  enum { kCounting, kResult, kUnwritten } content = kCounting;
  Index said = 0;  // 0: count
};

template <>
struct Argument<TensorMap, Rows> {
  Rows rows;
  DeviceTensor<Half, 4> memory;
  explicit Argument(const Rows& given) : rows(given), memory(numbers(given)) {}
  TensorMap get() const {
    const Index said = rows.said == 0 ? rows.count : rows.said;
    return tensor_map(TensorView<Half, 4>(memory.data(), {1, 1, said, 64}), rows.box_rows);
  }
  template <class Expect>
  bool is_right(Expect expect) const {
    const auto host = memory.to_host();
    for (Index i = 0; rows.content == Rows::kResult && i < host.size(); ++i)
      if (static_cast<double>(static_cast<float>(host.data()[i])) != static_cast<double>(expect(i)))
        return false;
    return true;
  }

 private:
  static DeviceTensor<Half, 4> numbers(const Rows& given) {
    const Shape<4> shape{1, 1, given.count, 64};
    if (given.content == Rows::kUnwritten) return DeviceTensor<Half, 4>(shape);
    Tensor<Half, 4> host(shape);
    for (Index i = 0; i < host.size(); ++i)
      host.data()[i] = Half(given.content == Rows::kResult ? 0 : i % 512);
    return DeviceTensor<Half, 4>(host);
  }
};

#define MAP const __grid_constant__ TensorMap map

inline LaunchConfig with(unsigned threads, int boxes = 2) {
  return {1, threads, 1024 + static_cast<std::size_t>(boxes) * kTileBytes};
}
inline const Rows kRows{128};
inline const Array kOut = zeros(384);

// ---- in kernels ---------------------------------------------------------------------------------

__device__ __forceinline__ Half* tiles(unsigned char* shared) {
  return reinterpret_cast<Half*>(align_to_1024(shared));
}

// By one thread: the tile's rows from `row` on; `full` has one arrival.
__device__ __forceinline__ void copy(Half* tile, const TensorMap& map, Barrier& full, int row) {
  arrive_expecting(full, kTileBytes);
  tma_load(tile, map, full, 0, row, 0, 0);
}

// D (64, N) = or += A B^T for tiles of 64 columns; B has N rows.
template <int N>
__device__ __forceinline__ void multiply(float (&D)[N / 2], const Half* A, const Half* B,
                                         bool accumulate = false) {
  for (int k = 0; k < 64; k += 16)
    wgmma<N, Half>(D, matrix_descriptor(A + k, 16, 1024), matrix_descriptor(B + k, 16, 1024),
                   accumulate || k > 0);
}

template <int N>
__device__ __forceinline__ float sum(const float (&D)[N]) {
  float total = 0;
  for (int i = 0; i < N; ++i) total += D[i];
  return total;
}

// By all threads of the block: numbers in a tile, by ordinary stores.
__device__ __forceinline__ void fill(Half* tile, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) tile[i] = from_float<Half>(1);
}

// How kernels begin: with a tile; with one and a barrier for a copy to it; with one that all
// threads have filled, for TMA and wgmma.
#define TILE                                   \
  FLASH_DYNAMIC_SHARED(unsigned char, shared); \
  Half* const tile = tiles(shared)
#define TILE_AND_BARRIER                                     \
  TILE;                                                      \
  __shared__ Barrier full;                                   \
  if (threadIdx.x == 0) init(full, 1), fence_barrier_init(); \
  __syncthreads()
#define TILE_OF_ONES   \
  TILE;                \
  fill(tile, kTile);   \
  fence_proxy_async(); \
  __syncthreads()
// What many then do: copy the tile; hand it on as numbers; wait for their product, D.
#define COPY_TILE \
  if (threadIdx.x == 0) copy(tile, map, full, 0)
#define READ_TILE out[threadIdx.x] = to_float(tile[threadIdx.x])
#define WAIT_AND_SUM \
  wgmma_commit();    \
  wgmma_wait<0>();   \
  out[threadIdx.x] = sum(D)

}  // namespace flash::simt_corpus
