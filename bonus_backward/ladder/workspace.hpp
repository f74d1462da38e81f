// What no rung of this ladder changes: which problems they take, the memory beside the tensors of
// a pass, the kernel before the main one and the kernel behind it, and the order of the key
// blocks.
//
// Before: lse in base 2 and delta = rowsum(dO * O), for rows of queries that are padded to a
// multiple of kRowsTogether, so that no rung has to look for the last one. A row that weighs no
// key, or does not exist, has an lse of inf: exp2(S - inf) = 0. Where dQ is summed up by
// additions, the float32 sums are set to 0 here as well. Behind: dQ = scale * sums.
//
// The sums lie as the lanes have them in registers (tensor_core.hpp), not as a matrix: a fragment
// of 16 rows and 8 columns is 128 neighbouring numbers, 4 of each lane. So a warp adds 512
// neighbouring bytes by one instruction. The fragments of 16 rows are neighbours.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "common/cuda/configurations.hpp"
#include "common/cuda/half.hpp"
#include "common/cuda/launch.hpp"
#include "common/cuda/warp.hpp"
#include "common/registry.hpp"
#include "part3_flash_cuda/ladder/fragments.hpp"

namespace flash::gradients {

inline constexpr int kRowsTogether = 128;

// ---- The problems -------------------------------------------------------------------------------

// Why the kernels do not take a problem, in words; "" when they take it.
inline std::string why_not(const AttentionProblem& problem) {
  const double scale = problem.options.scale.value_or(1);
  if (std::isfinite(scale) && !std::isfinite(static_cast<float>(scale * kLog2E)))
    return "scale is " + std::to_string(scale) + "; it is too large for float32";
  return mma::why_not_unscaled(problem);
}

inline float scale_in_base_2(const AttentionOptions& options, Index head_dim) {
  return static_cast<float>(attention_scale(options, head_dim) * kLog2E);
}

// ---- The memory ---------------------------------------------------------------------------------

// Of each row of queries; `rows` counts those of a head, with the padding.
struct Workspace {
  Index heads = 0, rows = 0;
  float* lse = nullptr;    // (heads, rows), in base 2
  float* delta = nullptr;  // (heads, rows)
  float* sums = nullptr;   // (heads, rows / 16, width / 8, 32 lanes, 4)
};

inline Index padded_rows(const AttentionShape& shape) {
  return (shape.queries + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
}

// `width`: head_dim rounded up to what the kernel computes with, or 0 without sums.
inline std::size_t workspace_bytes(const AttentionShape& shape, int width) {
  return sizeof(float) *
         static_cast<std::size_t>(shape.batch * shape.heads * padded_rows(shape) * (2 + width));
}

inline Workspace workspace_at(void* memory, const AttentionShape& shape) {
  Workspace work{.heads = shape.batch * shape.heads, .rows = padded_rows(shape)};
  work.lse = static_cast<float*>(memory);
  work.delta = work.lse + work.heads * work.rows;
  work.sums = work.delta + work.heads * work.rows;
  return work;
}

// Where a lane's 4 numbers of a fragment begin, counted from the head's sums. `row` is a multiple
// of 16, `column` of 8.
template <int kWidth>
__device__ __forceinline__ int place_of_sums(int row, int column, unsigned lane) {
  return (row / 16 * (kWidth / 8) + column / 8) * 128 + static_cast<int>(lane) * 4;
}

// to[i] += x[i], where other blocks add as well; `to` is aligned to 16 bytes.
__device__ __forceinline__ void add_in_memory(float* to, const float (&x)[4]) {
#if !defined(FLASH_SIMT) && __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(to), "f"(x[0]),
               "f"(x[1]), "f"(x[2]), "f"(x[3])
               : "memory");
#else
  for (int i = 0; i < 4; ++i)
    atomicAdd(to + i, x[i]);  // no race without it in 8_ordered: there blocks take turns
#endif
}

// ---- Before and behind the main kernel ----------------------------------------------------------

inline constexpr int kThreadsAround = 256;

// kWidth / 8 lanes have a row, 8 numbers each; if kIsWide several times, for a larger head_dim.
template <class T, int kWidth, bool kSums, bool kIsWide>
__global__ void __launch_bounds__(kThreadsAround)
    prepare_kernel(AttentionBackward<T> pass, Workspace work) {
  constexpr int kLanes = kWidth / 8;
  const AttentionShape shape = pass.shape();
  // The last rows first: the main kernel begins with the first ones, then still in the L2 cache.
  const Index row = (Index{gridDim.x - 1 - blockIdx.x} * kThreadsAround + threadIdx.x) / kLanes;
  const int lane = threadIdx.x % kLanes;
  const Index head = row / work.rows, i = row % work.rows;
  const Index b = head / shape.heads, h = head % shape.heads;
  const bool exists = head < work.heads && i < shape.queries;
  float delta = 0;
  for (int c = 8 * lane; exists && c < shape.head_dim; c += kWidth) {
    uint4 chunks[2] = {*reinterpret_cast<const uint4*>(&pass.out(b, h, i, c)),
                       *reinterpret_cast<const uint4*>(&pass.d_out(b, h, i, c))};
    const T* const out = reinterpret_cast<const T*>(&chunks[0]);
    const T* const d_out = reinterpret_cast<const T*>(&chunks[1]);
    FLASH_UNROLL
    for (int n = 0; n < 8; ++n) delta += to_float(out[n]) * to_float(d_out[n]);
    if (!kIsWide) break;
  }
  delta = warp_sum<kLanes>(delta);
  if (head >= work.heads) return;
  if (kSums)
    for (int n = 0; n < 2; ++n)
      *reinterpret_cast<float4*>(work.sums + row * kWidth + 4 * (lane + n * kLanes)) = float4{};
  if (lane == 0) {
    const float lse = exists ? pass.lse(b, h, i) : -INFINITY;
    work.lse[row] = lse == -INFINITY ? INFINITY : lse * kLog2E;
    work.delta[row] = delta;
  }
}

// A warp has 16 rows and 32 columns: 4 fragments. In 16 bits lane t of four gets all 8 columns of
// fragment t by a transposition among the four, and writes 16 bytes of rows g and g + 8.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreadsAround)
    finish_kernel(const float* sums, Index rows, TensorView<T, 4> d_q, float scale) {
  constexpr int kAcross = kWidth / 32;
  wait_for_kernel_before();
  // The last sums first: they are still in the L2 cache.
  const Index warp = (Index{gridDim.x - 1 - blockIdx.x} * kThreadsAround + threadIdx.x) / kWarpSize;
  const unsigned lane = threadIdx.x % kWarpSize, g = lane / 4, t = lane % 4;
  const Index blocks = rows / 16, head = warp / (blocks * kAcross), block = warp / kAcross % blocks,
              heads = d_q.extent(1);
  if (head >= heads * d_q.extent(0)) return;
  const int column0 = static_cast<int>(warp % kAcross) * 32;

  std::uint32_t words[2][4];  // [row g or g + 8][fragment], then [...][column / 2]
  FLASH_UNROLL
  for (int n = 0; n < 4; ++n) {
    const float4 x = *reinterpret_cast<const float4*>(sums + (head * rows + 16 * block) * kWidth +
                                                      (column0 / 8 + n) * 128 + lane * 4);
    if constexpr (std::is_same_v<T, float>) {
      const int column = column0 + 8 * n + static_cast<int>(2 * t);
      for (int r = 0; r < 2; ++r)
        if (const Index i = 16 * block + 8 * r + g; i < d_q.extent(2) && column < d_q.extent(3))
          *reinterpret_cast<float2*>(&d_q(head / heads, head % heads, i, column)) =
              r == 0 ? float2{x.x * scale, x.y * scale} : float2{x.z * scale, x.w * scale};
    } else {
      const T four[4] = {from_float<T>(x.x * scale), from_float<T>(x.y * scale),
                         from_float<T>(x.z * scale), from_float<T>(x.w * scale)};
      for (int r = 0; r < 2; ++r)
        words[r][n] = four[2 * r].bits | std::uint32_t{four[2 * r + 1].bits} << 16;
    }
  }
  if constexpr (!std::is_same_v<T, float>) {
    FLASH_UNROLL
    for (int r = 0; r < 2; ++r) {
      std::uint32_t(&w)[4] = words[r];
      FLASH_UNROLL
      for (unsigned distance = 1; distance <= 2; distance *= 2) {
        const bool upper = (t & distance) != 0;
        FLASH_UNROLL
        for (unsigned pair = 0; pair < 2; ++pair) {
          const unsigned low = distance == 1 ? 2 * pair : pair, high = low + distance;
          const std::uint32_t other =
              __shfl_xor_sync(kAllLanes, upper ? w[low] : w[high], static_cast<int>(distance));
          (upper ? w[low] : w[high]) = other;
        }
      }
      const Index i = 16 * block + 8 * r + g;
      const int column = column0 + 8 * static_cast<int>(t);
      if (i < d_q.extent(2) && column < d_q.extent(3))
        *reinterpret_cast<uint4*>(&d_q(head / heads, head % heads, i, column)) =
            make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
}

// Fills `work`; with kSums the sums for kWidth columns too.
template <int kWidth, bool kSums, bool kIsWide = false, class T>
void prepare(const AttentionBackward<T>& pass, const Workspace& work) {
  constexpr int kRows = kThreadsAround / (kWidth / 8);
  launch("prepare", prepare_kernel<T, kWidth, kSums, kIsWide>,
         {.grid = grid_size((work.heads * work.rows + kRows - 1) / kRows),
          .block = kThreadsAround,
          .stream = pass.stream},
         pass, work);
}

// pass.d_q = factor * sums.
template <int kWidth, class T>
void finish(const AttentionBackward<T>& pass, const Workspace& work, float factor) {
  const Index warps = work.heads * (work.rows / 16) * (kWidth / 32);
  constexpr int kWarps = kThreadsAround / kWarpSize;
  launch("finish", finish_kernel<T, kWidth>,
         {.grid = grid_size((warps + kWarps - 1) / kWarps),
          .block = kThreadsAround,
          .stream = pass.stream,
          .begins_early = true},
         work.sums, work.rows, pass.d_q, factor);
}

// ---- The order of the blocks --------------------------------------------------------------------

// What a thread block works at: the head, and the first of its rows. With a mask the blocks with
// the most pairs come first, and short ones fill the end; `section` heads at a time, whose other
// side then stays in the L2 cache. Without a mask the blocks of a head are neighbours.
struct BlockOfHead {
  int head, b, h, first;

  __device__ __forceinline__ BlockOfHead(const AttentionShape& shape, int section, Index rows,
                                         int rows_of_block, bool causal, bool last_first)
      : BlockOfHead(shape, section, rows, rows_of_block, causal, last_first,
                    static_cast<int>(blockIdx.x)) {}

  // `tile`: the block's number in this order.
  __device__ __forceinline__ BlockOfHead(const AttentionShape& shape, int section, Index rows,
                                         int rows_of_block, bool causal, bool last_first,
                                         int tile) {
    const int blocks = static_cast<int>((rows + rows_of_block - 1) / rows_of_block),
              heads = static_cast<int>(shape.batch * shape.heads);
    int block;
    if (causal) {
      const int begin = tile / (section * blocks) * section, i = tile % (section * blocks),
                here = heads - begin < section ? heads - begin : section;
      head = begin + i % here;
      block = last_first ? blocks - 1 - i / here : i / here;
    } else {
      head = tile / blocks;
      block = tile % blocks;
    }
    first = block * rows_of_block;
    b = head / static_cast<int>(shape.heads);
    h = head % static_cast<int>(shape.heads);
  }
};

// How many heads make a section, of equal size: a head of `rows` rows takes `bytes_of_row` bytes
// each of the L2 cache, of which an H100 has 50 MB. More than 8 heads, though they had room, cost
// up to 9 % (1024 queries, heads of 64).
inline int heads_of_section(Index heads, Index rows, Index bytes_of_row) {
  constexpr Index kInCache = 40 << 20, kMost = 8;
  const Index most = std::min({kInCache / (rows * bytes_of_row), kMost, heads}),
              fit = std::max<Index>(most, 1), sections = (heads + fit - 1) / fit;
  return static_cast<int>((heads + sections - 1) / sections);
}

}  // namespace flash::gradients
