// What the rungs for narrow heads share, forward and backward: a warp for a row, whose lanes take
// the rows of the other side in turns.
#pragma once

#include <limits>

#include "common/checks.hpp"
#include "common/cuda/warp.hpp"
#include "common/registry.hpp"

namespace flash::narrow {

inline constexpr int kWarps = 4, kThreads = kWarps * kWarpSize, kMostColumns = 4;

// A row in registers; 0 behind its last column.
template <int kColumns>
struct Row {
  float x[kColumns];

  __device__ __forceinline__ Row() : x{} {}
  __device__ __forceinline__ Row(const TensorView<const float, 4>& from, Index b, Index h, Index i)
      : x{} {
    const float* const data =
        from.data() + b * from.stride(0) + h * from.stride(1) + i * from.stride(2);
    FLASH_UNROLL
    for (int c = 0; c < kColumns; ++c)
      if (c < from.extent(3)) x[c] = data[c * from.stride(3)];
  }

  __device__ __forceinline__ float times(const Row& other) const {
    float sum = 0;
    FLASH_UNROLL
    for (int c = 0; c < kColumns; ++c) sum += x[c] * other.x[c];
    return sum;
  }
  __device__ __forceinline__ void add(float weight, const Row& other) {
    FLASH_UNROLL
    for (int c = 0; c < kColumns; ++c) x[c] += weight * other.x[c];
  }
  // The sum over the lanes of the warp times `factor`, which lane 0 stores.
  __device__ __forceinline__ void store_sum(const TensorView<float, 4>& to, Index b, Index h,
                                            Index i, float factor) const {
    float* const data = to.data() + b * to.stride(0) + h * to.stride(1) + i * to.stride(2);
    FLASH_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const float sum = warp_sum(x[c]);
      if (c < to.extent(3) && threadIdx.x % kWarpSize == 0) data[c * to.stride(3)] = sum * factor;
    }
  }
};

// Starts run(Columns()) with the smallest number of columns that is enough.
template <int kColumns>
struct Columns {};
template <class Run>
void with_columns(Index head_dim, Run run) {
  if (head_dim == 1) return run(Columns<1>());
  run(Columns<kMostColumns>());
}

inline std::string why_not(const AttentionProblem& problem) {
  if (std::string why = why_above("head_dim", problem.shape.head_dim, kMostColumns); !why.empty())
    return why;
  return why_above("keys", problem.shape.keys, std::numeric_limits<int>::max());
}

// Faster than the other passes wherever it was measured: one head of 1 column, up to 2048 rows.
inline bool is_best(const AttentionProblem& problem) {
  return problem.shape.queries <= 2048 && problem.shape.keys <= 2048;
}

}  // namespace flash::narrow
