// Contract of the warm-up puzzle: attention whose head dimension is 1, so that a query, a key and a
// value are one number each.
//
//   q  (n_queries)   k  (n_keys)   v  (n_keys)   z  (n_queries)
//   z(i) = sum_j softmax_j(q(i) * k(j)) * v(j)          no scale: sqrt(head_dim) is 1
//
// float32, device memory, contiguous. The kernel works in base 2: exp(s) = exp2(s * log2(e)), one
// instruction on a GPU.
//
// One thread block owns `queries_per_block` queries (1 to 1024, one thread each) and reads all keys
// in tiles of `keys_per_tile` (1 to 1024); neither has to divide a length. The launch goes to
// `stream` and does not wait. Throws ShapeError when k and v differ in length or an extent is 0,
// ArgumentError for a block or tile outside its range, CudaError when the launch fails.
#pragma once

#include "common/stream.hpp"
#include "common/task.hpp"
#include "common/tensor.hpp"

namespace flash {

void attention_1d_cuda(TensorView<const float, 1> q, TensorView<const float, 1> k,
                       TensorView<const float, 1> v, TensorView<float, 1> z,
                       int queries_per_block = 32, int keys_per_tile = 32, Stream stream = {});

struct Attention1dTask {
  static constexpr char kId[] = "part1.attention_1d";
  decltype(&flash::attention_1d_cuda) attention_1d_cuda = flash::attention_1d_cuda;
};

}  // namespace flash
