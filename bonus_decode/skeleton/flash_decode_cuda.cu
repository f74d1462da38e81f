// Task D.B: decoding on the GPU, in two kernels.
//
//   part    a thread block for each (sequence, part, kv head): (out, lse) of its keys for all rows
//           of the group
//   merge   a thread block for each row: merges its parts
//
// given/decode_tile.hpp has the tiles and who owns what of them. Scores are scaled by log2(e), so
// that a weight costs one exp2f.
#include <cmath>

#include "bonus_decode/given/decode_tile.hpp"

namespace flash {
namespace {

using namespace decode;

template <class T, class C>
__global__ void __launch_bounds__(C::kThreads, 2)
    part_kernel(Decode<T> pass, float scale, Parts parts) {
  constexpr int kRows = C::kRows, kColumns = C::kColumns;
  const DecodeShape shape = pass.shape();
  const int page_size = static_cast<int>(shape.page_size);
  const int rows = static_cast<int>(shape.rows()), queries = static_cast<int>(shape.queries);

  // TODO which part this block has: from blockIdx.x the kv head, which changes fastest,
  //   the part s of parts.per_sequence() and the sequence b; by keys_of_part() its keys, begin to
  //   end - 1. A block without keys returns. Replace the two lines below, too (about 8 lines)
  const int kv_head = 0, b = 0;
  const int s = 0, length = 0, begin = 0, end = 0;

  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  const auto K_tile = [&](int n) {  // [kKeys][head_dim]; V's is behind it
    return reinterpret_cast<T*>(shared + n % C::kStages * (2 * C::kTileBytes));
  };
  const Thread<C> thread(rows);

  // TODO where the rows of key j of the sequence begin in pass.k and pass.v, by the block
  //   table (about 4 lines)
  const auto find = [&](int) { return KeyValue<T>{}; };

  const auto start = [&](int tile) {
    const int j0 = begin + tile * C::kKeys;
    start_tile<C>(K_tile(tile), K_tile(tile) + C::kKeys * C::kHeadDim, min(end - j0, C::kKeys),
                  [&](int j) { return find(j0 + j); });
  };
  start(0);

  // Row r is query i of head h; the block's rows of a kv head are numbered head by head.
  float q[kRows][kColumns] = {}, o[kRows][kColumns] = {}, m[kRows], l[kRows] = {};
  int visible[kRows];  // the row sees key j of the sequence if j < visible[r]; at most end
  FLASH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int row = thread.first_row + r, i = row % queries;
    m[r] = -INFINITY;
    visible[r] = row < rows ? min(length - queries + i + 1, end) : 0;
    const Index h = kv_head * shape.group() + row / queries;
    FLASH_UNROLL
    for (int n = 0; n < kColumns && row < rows; ++n)
      q[r][n] = to_float(pass.q(b, h, i, thread.column(n))) * (scale * kLog2E);
  }

  for (int tile = 0, j0 = begin; j0 < end; ++tile, j0 += C::kKeys) {
    wait_for_tile();
    __syncthreads();  // for the copies of all threads; and nobody reads the tile before any more
    start(tile + 1);
    const T *const K_smem = K_tile(tile), *const V_smem = K_smem + C::kKeys * C::kHeadDim;

    // TODO the online softmax of part 1 over the tile: the thread's keys are
    //   thread.first_key and then every keys_at_once-th below kKeys, also in the last tile.
    //   load_columns() reads its columns of a row of K_smem or V_smem. All lanes of a warp call
    //   warp_sum<kLanes>() for a score; after it, a row leaves out the keys that it does not see,
    //   their values too. A weight of a score of -inf is 0 (about 25 lines)
  }

  // The sums of all groups of lanes, in shared memory.
  float* const o_smem = reinterpret_cast<float*>(shared);  // [place][head_dim]
  float* const m_smem = o_smem + C::kSums * kColumns;      // [place]
  float* const l_smem = m_smem + C::kSums / C::kLanes;     // [place]
  __syncthreads();                                         // the tiles are not read any more
  FLASH_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const int place = thread.place(thread.first_key, thread.first_row + r);
    store_sums<C>(o_smem + place * C::kHeadDim, o[r], thread);
    if (thread.lane == 0) m_smem[place] = m[r], l_smem[place] = l[r];
  }
  __syncthreads();

  for (int n = threadIdx.x; n < rows * C::kHeadDim; n += C::kThreads) {
    const int row = n / C::kHeadDim, p = n % C::kHeadDim, c = column_of_sum<C>(p);
    const Index row_of_parts = (b * shape.heads + kv_head * shape.group()) * queries + row;
    // TODO the part's out of this row and column, and where p is 0 its lse: the sums of
    //   the keys_at_once groups of lanes that have the row, group g at thread.place(g, row), each
    //   weighed by exp2 of its m less the largest m. o_smem[place * kHeadDim + p] belongs to column
    //   c of out. A group that saw no key has an l of 0; one that saw only NaN has an m of -inf,
    //   too, but its l is NaN (about 14 lines)
  }
}

// A thread has a column.
template <class T>
__global__ void merge_kernel(Decode<T> pass, Parts parts) {
  const DecodeShape shape = pass.shape();
  const Index row = blockIdx.x, i = row % shape.queries;
  const Index h = row / shape.queries % shape.heads, b = row / shape.queries / shape.heads;
  const int c = static_cast<int>(threadIdx.x);
  // TODO task D.A for this row and column, over the parts that have keys. from_float<T>()
  //   rounds to the type of out. Thread 0 also stores lse (about 16 lines)
}

}  // namespace

template <class T>
void flash_decode_cuda(const Decode<T>& pass) {
  const DecodeShape shape = check_decode(pass);
  check_taken(pass);
  const float scale = static_cast<float>(attention_scale({.scale = pass.scale}, shape.head_dim));
  const Index rows = shape.batch * shape.heads * shape.queries, parts = parts_of_longest(shape);
  const DeviceTensor<float, 3> part_out({rows, parts, shape.head_dim}, pass.stream);
  const DeviceTensor<float, 2> part_lse({rows, parts}, pass.stream);
  with_config<T>(shape.head_dim, [&]<class C>(C) {
    // TODO two launches on pass.stream: part_kernel with kThreads threads and
    //   kSharedBytes for each kv head of each part of each sequence, merge_kernel with head_dim
    //   threads for each row. grid_size() checks the number of blocks (about 13 lines)
    (void)scale;
    throw NotYetImplemented("decode.flash_decode_cuda");
  });
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(FlashDecodeCudaTask)
