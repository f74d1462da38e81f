// float32 numbers as sums of 16-bit numbers, so that tensor cores can multiply them.
//
// The first plane of a number is the number rounded to 16 bits, the next one what is then missing.
//   fast    two planes of fp16: 23 bits. fp16 reaches only from 2^-24 to 2^16, so the
//           numbers of a tile are first multiplied by a power of two, which brings the largest
//           into [2^14, 2^15). One below 2^-17 of the largest loses digits of its second plane.
//   robust  three planes of bfloat16, which has float32's range: 24 bits, without a power of two.
// A product needs the products of planes a and b with a + b < kPlanes: 3, or 6. The others are as
// small as what a float32 rounds away.
#pragma once

#include "common/cuda/split.hpp"
#include "part3_flash_cuda/ladder/warpgroups.hpp"

namespace flash::planes {

// Split into planes, two numbers at a time.
template <int kPlanes, class T>
__device__ __forceinline__ void split(float low, float high, std::uint32_t (&planes)[kPlanes]) {
  FLASH_UNROLL
  for (int plane = 0; plane < kPlanes; ++plane) {
    planes[plane] = pack<T>(low, high);
    const float2 rounded = mma::unpack<T>(planes[plane]);
    low -= rounded.x;
    high -= rounded.y;
  }
}

__device__ __forceinline__ float largest_of(const float4& x) {
  return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
}

// Four neighbours times `power`, as planes.
template <class C>
__device__ __forceinline__ void split_four(const float4& x, float power,
                                           uint2 (&planes)[C::kPlanes]) {
  std::uint32_t first[C::kPlanes], second[C::kPlanes];
  split<C::kPlanes, typename C::Element>(x.x * power, x.y * power, first);
  split<C::kPlanes, typename C::Element>(x.z * power, x.w * power, second);
  FLASH_UNROLL
  for (int plane = 0; plane < C::kPlanes; ++plane) planes[plane] = {first[plane], second[plane]};
}

// ---- Splitting before the main kernel -----------------------------------------------------------

// 0 beyond the tensor's end.
__device__ __forceinline__ float4 load_four(const TensorView<const float, 4>& x, Index b, Index h,
                                            int row, int column) {
  return row < x.extent(2) && column < x.extent(3)
             ? *reinterpret_cast<const float4*>(&x(b, h, row, column))
             : float4{0, 0, 0, 0};
}

// A tile of kRows rows that a block of kSplitThreads threads has in registers. `scratch`: shared
// memory for a float a warp.
template <class C, int kRows>
struct LoadedTile {
  static constexpr int kSize = kRows * C::kHeadDim, kFours = kSize / 4 / kSplitThreads,
                       kLanes = C::kHeadDim / 4;  // of a row
  int rows, columns, row0, column;                // of the tensor; of the thread
  float4 four[kFours];

  __device__ __forceinline__ LoadedTile(const TensorView<const float, 4>& x, Index b, Index h,
                                        int tile)
      : rows(static_cast<int>(x.extent(2))),
        columns(static_cast<int>(x.extent(3))),
        row0(tile * kRows + static_cast<int>(threadIdx.x) / kLanes),
        column(static_cast<int>(threadIdx.x) % kLanes * 4) {
    FLASH_UNROLL
    for (int n = 0; n < kFours; ++n) four[n] = load_four(x, b, h, row(n), column);
  }
  __device__ __forceinline__ int row(int n) const { return row0 + n * (kSplitThreads / kLanes); }

  // The power of two for two planes.
  __device__ __forceinline__ float power(float* scratch) const {
    float largest = 0;
    FLASH_UNROLL
    for (int n = 0; n < kFours; ++n) largest = fmaxf(largest, largest_of(four[n]));
    return scale_for(block_max<kSplitThreads>(largest, scratch));
  }
  // Whether more than 1/1024 of the numbers lose digits in two planes.
  __device__ __forceinline__ bool loses_digits(float power, float* scratch) const {
    const auto is_small = [&](float value) {
      return value != 0 && fabsf(value) * power < 0.125f ? 1 : 0;
    };
    int small = 0;
    FLASH_UNROLL
    for (int n = 0; n < kFours; ++n)
      small +=
          is_small(four[n].x) + is_small(four[n].y) + is_small(four[n].z) + is_small(four[n].w);
    return block_sum<kSplitThreads>(static_cast<float>(small), scratch) * 1024 > kSize;
  }
  // The tile's part of the planes of a head, times `power`.
  __device__ __forceinline__ void store(typename C::Element* planes_of_head, float power) const {
    FLASH_UNROLL
    for (int n = 0; n < kFours; ++n) {
      uint2 planes[C::kPlanes];
      split_four<C>(four[n], power, planes);
      if (row(n) >= rows || column >= columns) continue;
      FLASH_UNROLL
      for (int plane = 0; plane < C::kPlanes; ++plane)
        *reinterpret_cast<uint2*>(planes_of_head + (Index{plane} * rows + row(n)) * columns +
                                  column) = planes[plane];
    }
  }
};

// ---- K and V ------------------------------------------------------------------------------------

// Which heads the robust kernels take: those with a tile of K or V where more than 1/1024 of the
// numbers lose digits in two planes of fp16. All null: one kind of kernel takes all heads.
struct Choice {
  unsigned* wide_tiles = nullptr;  // (2, heads, tiles of the fast kernel): 1 for such a tile
  unsigned* is_robust = nullptr;   // (heads)
  int tiles = 0;
};

// What the kernels count, zeroed by the first of them.
struct Counters {
  unsigned next[2];       // how much work was drawn: fast, robust
  unsigned robust_heads;  // of the choice
};

// K and V as planes, and 1 over the power of two of each tile of kBlockK keys.
template <class C>
struct Split {
  typename C::Element *k, *v;  // (heads, kPlanes, keys, head_dim)
  float *k_factor, *v_factor;  // (heads, tiles)
};

// A block splits a tile of K (blockIdx.y 0) or V (1).
template <class C>
__global__ void __launch_bounds__(kSplitThreads)
    split_kernel(TensorView<const float, 4> k, TensorView<const float, 4> v, Split<C> to,
                 Choice choice, Counters* counters) {
  constexpr bool kIsFast = C::kPlanes == 2;
  let_next_kernel_begin();
  __shared__ float scratch[kSplitThreads / kWarpSize];
  const bool is_k = blockIdx.y == 0;
  const int tiles = (static_cast<int>(k.extent(2)) + C::kBlockK - 1) / C::kBlockK,
            heads = static_cast<int>(gridDim.x) / tiles,
            head = static_cast<int>(blockIdx.x) / tiles, thread = static_cast<int>(threadIdx.x);
  const bool begins = blockIdx.x == 0 && is_k && thread == 0;
  if (kIsFast || choice.is_robust == nullptr) {
    if (begins) *counters = {};
  } else {
    wait_for_kernel_before();
    bool wide = false;
    for (int i = thread; i < 2 * choice.tiles; i += kSplitThreads) {
      const int tile = (i / choice.tiles * heads + head) * choice.tiles + i % choice.tiles;
      wide |= choice.wide_tiles[tile] != 0;
    }
    const bool is_robust = __syncthreads_or(wide);
    if (is_k && blockIdx.x % tiles == 0 && thread == 0) {
      choice.is_robust[head] = is_robust;
      if (is_robust) atomicAdd(&counters->robust_heads, 1u);
    }
    if (!is_robust) return;
  }

  const LoadedTile<C, C::kBlockK> tile(is_k ? k : v, head / k.extent(1), head % k.extent(1),
                                       static_cast<int>(blockIdx.x) % tiles);
  float power = 1;
  if constexpr (kIsFast) {
    power = tile.power(scratch);
    if (thread == 0) (is_k ? to.k_factor : to.v_factor)[blockIdx.x] = factor_of(power);
    if (choice.wide_tiles != nullptr) {
      const bool is_wide = tile.loses_digits(power, scratch);
      if (thread == 0) choice.wide_tiles[blockIdx.y * gridDim.x + blockIdx.x] = is_wide;
    }
  }
  tile.store((is_k ? to.k : to.v) + Index{head} * C::kPlanes * tile.rows * tile.columns, power);
}

// ---- Q ------------------------------------------------------------------------------------------

// Copies a warpgroup's 64 rows of Q, from row0 on, to shared memory as planes. Each row has a power
// of two of its own; factor[row] becomes 1 over it.
template <class C>
__device__ __forceinline__ void load_Q(typename C::QPlanes& tiles, float* factor,
                                       const TensorView<const float, 4>& q, int b, int h, int row0,
                                       int thread) {
  constexpr int kLanes = C::kHeadDim / 4, kRowsAtOnce = 128 / kLanes, kLoads = 8;
  const int c = thread % kLanes, queries = static_cast<int>(q.extent(2));
  const float* const from = &q(b, h, 0, 0) + 4 * c;
  const bool inside = 4 * c < static_cast<int>(q.extent(3));
  FLASH_UNROLL_BY(1)
  for (int first = thread / kLanes; first < 64; first += kLoads * kRowsAtOnce) {
    float4 four[kLoads];
    FLASH_UNROLL
    for (int n = 0; n < kLoads; ++n) {
      const int row = row0 + first + n * kRowsAtOnce;
      four[n] = inside && row < queries ? *reinterpret_cast<const float4*>(from + row * q.stride(2))
                                        : float4{0, 0, 0, 0};
    }
    FLASH_UNROLL
    for (int n = 0; n < kLoads; ++n) {
      const int row = first + n * kRowsAtOnce;
      float power = 1;
      if constexpr (C::kScales) {
        power = scale_for(warp_max<kLanes>(largest_of(four[n])));
        if (c == 0) factor[row] = factor_of(power);
      }
      uint2 planes[C::kPlanes];
      split_four<C>(four[n], power, planes);
      FLASH_UNROLL
      for (int plane = 0; plane < C::kPlanes; ++plane)
        *reinterpret_cast<uint2*>(tiles[plane].chunk(row, c / 2) + c % 2 * 4) = planes[plane];
    }
  }
}

// ---- Products -----------------------------------------------------------------------------------

// Calls multiply(a, b, first) for the products of plane a of the one and b of the other, the
// smallest first: a large sum would swallow them.
template <class C, class Multiply>
__device__ __forceinline__ void for_products(Multiply multiply) {
  FLASH_UNROLL
  for (int sum = C::kPlanes - 1; sum >= 0; --sum) {
    FLASH_UNROLL
    for (int b = 0; b <= sum; ++b) multiply(sum - b, b, sum == C::kPlanes - 1 && b == 0);
  }
}

// ---- Workspace and launch -----------------------------------------------------------------------

// Shares out the workspace; without memory it counts bytes.
struct Workspace {
  char* memory = nullptr;
  std::size_t used = 0;

  template <class T>
  T* take(Index count) {
    T* const here = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + used);
    used += (static_cast<std::size_t>(count) * sizeof(T) + 255) / 256 * 256;
    return here;
  }
  template <class C>
  Split<C> split(const AttentionShape& shape) {
    using T = typename C::Element;
    const Index heads = shape.batch * shape.heads, size = heads * shape.keys * shape.head_dim,
                factors = heads * count_tiles<C>(shape);
    T *const k = take<T>(C::kPlanes * size), *const v = take<T>(C::kPlanes * size);
    return {k, v, take<float>(factors), take<float>(factors)};
  }
  template <class C>
  static int count_tiles(const AttentionShape& shape) {
    return static_cast<int>((shape.keys + C::kBlockK - 1) / C::kBlockK);
  }
};

// Enqueues the split of K and V.
template <class C>
void start_split(const AttentionForward<float>& pass, const Split<C>& to, const Choice& choice,
                 Counters* counters) {
  const AttentionShape shape = pass.shape();
  dim3 grid = grid_size(shape.batch * shape.heads * Workspace::count_tiles<C>(shape));
  grid.y = 2;
  launch("split", split_kernel<C>,
         {.grid = grid,
          .block = kSplitThreads,
          .stream = pass.stream,
          .begins_early = choice.is_robust != nullptr && !C::kScales},
         pass.k, pass.v, to, choice, counters);
}

}  // namespace flash::planes
