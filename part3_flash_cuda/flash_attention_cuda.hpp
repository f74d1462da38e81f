// Contract of part 3: flash attention on a GPU, forward.
//
// common/attention.hpp has the problem: shapes, mask, scale, and what happens to rows without a key
// and to NaN. All views point to device memory and may have any strides; no alignment is asked of
// them beyond the element's own. Inputs are never written to, and no output overlaps an input or
// the other output.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/attention.hpp"
#include "common/half.hpp"
#include "common/task.hpp"

namespace flash {

// ---- Task 3.A: the forward kernel and its launcher ----------------------------------------------

// The share of a thread block of `warps` warps: it owns `block_queries` queries, and reads the keys
// in blocks of `block_keys`. `head_dim` is how many columns of Q, K and V it holds at a time: a
// smaller head is filled up with zeros; a larger one is taken in slices, which costs a pass over Q
// and K for each slice of O.
struct FlashForwardConfig {
  Index head_dim = 0;
  Index block_queries = 0;
  Index block_keys = 0;
  Index warps = 0;

  bool operator==(const FlashForwardConfig&) const = default;
};

// "128 queries x 64 keys, 4 warps, head_dim 64"
inline std::string to_string(const FlashForwardConfig& config) {
  return std::to_string(config.block_queries) + " queries x " + std::to_string(config.block_keys) +
         " keys, " + std::to_string(config.warps) + " warps, head_dim " +
         std::to_string(config.head_dim);
}

// The widest head.
inline constexpr Index kFlashMaxHeadDim = 1024;

// Configurations that every library has for each type, beside others of its own choice.
inline constexpr FlashForwardConfig kFlashForwardConfigs[] = {
    {32, 64, 32, 2}, {64, 128, 64, 4}, {64, 64, 32, 2}, {128, 64, 32, 4}, {256, 64, 32, 8}};
// Bytes of shared memory of a thread block in which each of them has room.
inline constexpr std::size_t kFlashRoomForConfigs = 227 * 1024;

// The configurations made for heads of `head_dim` that are compiled and have room on the current
// GPU, in the order in which they are tried: the first is the default. T is float, Half or
// BFloat16, here and below. Throws Unsupported as the function below does.
template <class T>
std::vector<FlashForwardConfig> flash_attention_forward_configs(Index head_dim);

// pass.out = softmax(scale Q K^T) V in T, and pass.lse in float32. With `causal`, blocks of keys
// past the last query of a block are not read. Algorithm: FlashAttention-2 (Dao 2023,
// arXiv:2307.08691, algorithm 1).
//
// Q K^T, softmax and the sums are in float32, whatever T is; P is rounded to T before it meets V,
// and so is out at the end. The same inputs give the same bits in every run. Extra device memory:
// none. The launch goes to pass.stream and does not wait.
// Loads are coalesced, with few bank conflicts (part1_softmax_matmul/cuda.md, section 5).
//
// `config`: any compiled configuration, also one made for another head_dim. Throws ShapeError and
// ArgumentError as common/attention.hpp does, Unsupported for a head_dim above kFlashMaxHeadDim, a
// configuration that is not compiled or one that has no room on this GPU, and CudaError when the
// launch fails.
template <class T>
void flash_attention_forward_cuda(const AttentionForward<T>& pass,
                                  const std::optional<FlashForwardConfig>& config = std::nullopt);

// ---- What the task's library exports ------------------------------------------------------------

template <class T>
struct FlashForwardCudaFunctions {
  std::vector<FlashForwardConfig> (*flash_attention_forward_configs)(Index head_dim) =
      flash::flash_attention_forward_configs<T>;
  void (*flash_attention_forward_cuda)(const AttentionForward<T>&,
                                       const std::optional<FlashForwardConfig>&) =
      flash::flash_attention_forward_cuda<T>;
};
struct FlashForwardCudaTask : ForTypes<FlashForwardCudaFunctions, float, Half, BFloat16> {
  static constexpr char kId[] = "part3.flash_forward_cuda";
};

}  // namespace flash
