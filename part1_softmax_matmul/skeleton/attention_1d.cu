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

  // TODO load this thread's query and multiply it by kLog2E, which is log2(e); start m, l
  //   and o (4 lines). A thread past the last query must not return: it helps to load the tiles

  for (Index tile0 = 0; tile0 < n_keys; tile0 += keys_per_tile) {
    const int keys = static_cast<int>(min(static_cast<Index>(keys_per_tile), n_keys - tile0));

    // TODO load the tile: together the threads copy `keys` keys and values to shared
    //   memory, whatever the number of threads. No thread may read before all have written, or
    //   write while another one still reads (about 7 lines)

    // TODO the online softmax over the tile: for each key compute the score and the new
    //   maximum, rescale l and o, and add the key's terms to them, all in base 2 (about 8 lines)
  }

  // TODO store z(i), if there is a query i (1 line)
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

  // TODO the launch: a thread for each query of the block, and shared memory for one tile
  //   of keys and one of values (about 6 lines)
  throw NotYetImplemented("part1.attention_1d");
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(Attention1dTask)
