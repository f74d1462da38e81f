// Contract of task 1.A and of the unfused function beside it: softmax(X) V, with and without the
// d1 x d2 matrix in memory. The shapes of x, v and out, and the rules for -inf and NaN, are in
// common/softmax_matmul.hpp.
//
// All float32, accumulated in float32. Every function throws ShapeError when the shapes do not fit.
#pragma once

#include "common/softmax_matmul.hpp"
#include "common/task.hpp"

namespace flash {

// ---- Given: the unfused function ----------------------------------------------------------------

// Softmax along `axis` (0, 1, 2, or -1 for the last), then the product, with the whole softmax held
// in between: batch * d1 * d2 floats of extra memory. On the CPU a blocked product.
FLASH_EXPORT void softmax_matmul(const SoftmaxMatmul<float>& pass, int axis = -1);

// The same on a GPU: a softmax kernel, then cuBLAS in full float32. Throws Unsupported unless the
// last axis of v and of out is contiguous (cuBLAS takes one leading dimension, and no other
// stride).
FLASH_EXPORT void softmax_matmul_cuda(const SoftmaxMatmul<float>& pass, int axis = -1);

// ---- Task 1.A: the fused function ---------------------------------------------------------------
//
// Walks over the keys in blocks of block_2 for block_1 rows at a time, and never holds more of
// softmax(X) than one block_1 x block_2 tile. Algorithm: online softmax (Milakov and Gimelshein
// 2018, arXiv:1805.02867) with the accumulator of FlashAttention (Dao et al. 2022,
// arXiv:2205.14135, algorithm 1).
//
// Extra memory on the host: a few blocks, O(block_1 * (block_2 + d3)). On the device: none.
// Throws ArgumentError for a block size below 1.

struct SoftmaxMatmulBlocks {
  Index block_1 = 16, block_2 = 16;
};

// On the CPU. Any block sizes from 1.
void fused_softmax_matmul(const SoftmaxMatmul<float>& pass, const SoftmaxMatmulBlocks& blocks = {});

// Columns of `out` that one thread block of the CUDA kernel accumulates at a time: 256. A wider d3
// is cut into chunks, and each chunk reads X again.
inline constexpr Index kFusedChunk = 256;

// On a GPU: one thread block owns a batch index, block_1 rows and a chunk of columns. The launch
// goes to pass.stream and does not wait. Throws Unsupported unless each block size is 16, 32 or 64
// (the compiled ones), and CudaError when the launch fails.
//
// The product reads shared memory 16 bytes at a time. In whole blocks all loads of an input move at
// most three times the sectors that it has to move, and one wavefront of shared memory in eight, at
// most, is due to a bank conflict (cuda.md, section 5).
void fused_softmax_matmul_cuda(const SoftmaxMatmul<float>& pass,
                               const SoftmaxMatmulBlocks& blocks = {});

// ---- What the tasks' libraries export -----------------------------------------------------------

using FusedSoftmaxMatmul = void (*)(const SoftmaxMatmul<float>&, const SoftmaxMatmulBlocks&);

struct FusedCpuTask {
  static constexpr char kId[] = "part1.fused_cpu";
  FusedSoftmaxMatmul fused_softmax_matmul = flash::fused_softmax_matmul;
};

struct FusedCudaTask {
  static constexpr char kId[] = "part1.fused_cuda";
  FusedSoftmaxMatmul fused_softmax_matmul_cuda = flash::fused_softmax_matmul_cuda;
};

}  // namespace flash
