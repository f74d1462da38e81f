// The warm-up: attention in which a query, a key and a value are one number each. One thread owns
// one query; the threads of a block share tiles of keys and values. Queries do not need each other,
// so each block has its own. Every query needs every key, so each block reads all keys.
#include "common/checks.hpp"
#include "common/cuda/warp.hpp"
#include "part1_softmax_matmul/attention_1d.hpp"

namespace flash {
namespace {

constexpr int kMostThreads = 1024;

__global__ void attention_1d_kernel(TensorView<const float, 1> q, TensorView<const float, 1> k,
                                    TensorView<const float, 1> v, TensorView<float, 1> z,
                                    int keys_per_tile) {
  FLASH_DYNAMIC_SHARED(float, shared);
  float* const k_tile = shared;                  // [keys_per_tile]
  float* const v_tile = shared + keys_per_tile;  // [keys_per_tile]

  const Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;  // this thread's query
  const Index n_queries = q.extent(0), n_keys = k.extent(0);

  // BEGIN SOLUTION load this thread's query and multiply it by kLog2E, which is log2(e); start m, l
  //   and o (4 lines). A thread past the last query must not return: it helps to load the tiles
  const float q_log2 = i < n_queries ? q(i) * kLog2E : 0;
  float m = -INFINITY;  // the largest score so far, times log2(e)
  float l = 0;          // sum of exp2(score - m)
  float o = 0;          // sum of exp2(score - m) * v
  // END SOLUTION

  for (Index tile0 = 0; tile0 < n_keys; tile0 += keys_per_tile) {
    const int keys = static_cast<int>(min(static_cast<Index>(keys_per_tile), n_keys - tile0));

    // BEGIN SOLUTION load the tile: together the threads copy `keys` keys and values to shared
    //   memory, whatever the number of threads. No thread may read before all have written, or
    //   write while another one still reads (about 7 lines)
    __syncthreads();
    for (int j = threadIdx.x; j < keys; j += blockDim.x) {
      k_tile[j] = k(tile0 + j);
      v_tile[j] = v(tile0 + j);
    }
    __syncthreads();
    // END SOLUTION

    // BEGIN SOLUTION the online softmax over the tile: for each key compute the score and the new
    //   maximum, rescale l and o, and add the key's terms to them, all in base 2 (about 8 lines)
    for (int j = 0; j < keys; ++j) {
      const float score = q_log2 * k_tile[j];
      const float m_new = fmaxf(m, score);
      const float alpha = exp2f(m - m_new);
      const float weight = exp2f(score - m_new);
      l = l * alpha + weight;
      o = o * alpha + weight * v_tile[j];
      m = m_new;
    }
    // END SOLUTION
  }

  // BEGIN SOLUTION store z(i), if there is a query i (1 line)
  if (i < n_queries) z(i) = o / l;
  // END SOLUTION
}

void check_vector(const char* name, const Shape<1>& shape, const char* length_name, Index length) {
  if (shape[0] < 1 || shape[0] != length)
    throw ShapeError(std::string(name) + " has shape " + to_string<1>(shape) + "; it must be (" +
                     length_name + "), at least 1" +
                     (shape[0] == length ? "" : ", here " + std::to_string(length)));
}

}  // namespace

void attention_1d_cuda(TensorView<const float, 1> q, TensorView<const float, 1> k,
                       TensorView<const float, 1> v, TensorView<float, 1> z, int queries_per_block,
                       int keys_per_tile, Stream stream) {
  check_vector("q", q.shape(), "n_queries", q.extent(0));
  check_vector("z", z.shape(), "n_queries", q.extent(0));
  check_vector("k", k.shape(), "n_keys", k.extent(0));
  check_vector("v", v.shape(), "n_keys", k.extent(0));
  check_between("queries_per_block", queries_per_block, 1, kMostThreads);
  check_between("keys_per_tile", keys_per_tile, 1, kMostThreads);

  // BEGIN SOLUTION the launch: a thread for each query of the block, and shared memory for one tile
  //   of keys and one of values (about 6 lines)
  // STUB throw NotYetImplemented("part1.attention_1d");
  const Index blocks = (q.extent(0) + queries_per_block - 1) / queries_per_block;
  launch("attention_1d", attention_1d_kernel,
         {.grid = grid_size(blocks),
          .block = static_cast<unsigned>(queries_per_block),
          .shared_bytes = 2 * sizeof(float) * keys_per_tile,
          .stream = stream},
         q, k, v, z, keys_per_tile);
  // END SOLUTION
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(Attention1dTask)
