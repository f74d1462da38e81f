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

  // BEGIN SOLUTION which part this block has: from blockIdx.x the kv head, which changes fastest,
  //   the part s of parts.per_sequence() and the sequence b; by keys_of_part() its keys, begin to
  //   end - 1. A block without keys returns. Replace the two lines below, too (about 8 lines)
  // STUB const int kv_head = 0, b = 0;
  // STUB const int s = 0, length = 0, begin = 0, end = 0;
  const int kv_heads = static_cast<int>(shape.kv_heads), x = static_cast<int>(blockIdx.x);
  const int kv_head = x % kv_heads, s = x / kv_heads % parts.per_sequence();
  const int b = x / kv_heads / parts.per_sequence();
  const int length = pass.lengths(b);
  const int keys_each = keys_of_part(length, page_size);
  const int begin = s * keys_each, end = min(begin + keys_each, length);
  if (begin >= end) return;
  // END SOLUTION

  FLASH_DYNAMIC_SHARED(unsigned char, shared);
  const auto K_tile = [&](int n) {  // [kKeys][head_dim]; V's is behind it
    return reinterpret_cast<T*>(shared + n % C::kStages * (2 * C::kTileBytes));
  };
  const Thread<C> thread(rows);

  // BEGIN SOLUTION where the rows of key j of the sequence begin in pass.k and pass.v, by the block
  //   table (about 4 lines)
  // STUB const auto find = [&](int) { return KeyValue<T>{}; };
  const auto find = [&](int j) {
    const Index page = pass.block_table(b, j / page_size), row = j % page_size;
    return KeyValue<T>{&pass.k(page, row, kv_head, 0), &pass.v(page, row, kv_head, 0)};
  };
  // END SOLUTION

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

    // BEGIN SOLUTION the online softmax of part 1 over the tile: the thread's keys are
    //   thread.first_key and then every keys_at_once-th below kKeys, also in the last tile.
    //   load_columns() reads its columns of a row of K_smem or V_smem. All lanes of a warp call
    //   warp_sum<kLanes>() for a score; after it, a row leaves out the keys that it does not see,
    //   their values too. A weight of a score of -inf is 0 (about 25 lines)
    for (int j = thread.first_key; j < C::kKeys; j += thread.keys_at_once) {
      float k[kColumns], v[kColumns], scores[kRows] = {};
      load_columns<C>(k, K_smem + j * C::kHeadDim, thread);
      load_columns<C>(v, V_smem + j * C::kHeadDim, thread);
      FLASH_UNROLL
      for (int r = 0; r < kRows; ++r) {
        FLASH_UNROLL
        for (int n = 0; n < kColumns; ++n) scores[r] = fmaf(q[r][n], k[n], scores[r]);
      }
      FLASH_UNROLL
      for (int r = 0; r < kRows; ++r) scores[r] = warp_sum<C::kLanes>(scores[r]);
      FLASH_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const bool sees = j0 + j < visible[r];
        const float score = sees ? scores[r] : -INFINITY, m_new = fmaxf(m[r], score);
        const float alpha = m[r] == m_new ? 1 : exp2_approximate(m[r] - m_new);
        const float weight = score == -INFINITY ? 0 : exp2_approximate(score - m_new);
        m[r] = m_new;
        l[r] = fmaf(l[r], alpha, weight);
        FLASH_UNROLL
        for (int n = 0; n < kColumns; ++n) {
          o[r][n] *= alpha;
          if (sees) o[r][n] = fmaf(weight, v[n], o[r][n]);
        }
      }
    }
    // END SOLUTION
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
    // BEGIN SOLUTION the part's out of this row and column, and where p is 0 its lse: the sums of
    //   the keys_at_once groups of lanes that have the row, group g at thread.place(g, row), each
    //   weighed by exp2 of its m less the largest m. o_smem[place * kHeadDim + p] belongs to column
    //   c of out. A group that saw no key has an l of 0; one that saw only NaN has an m of -inf,
    //   too, but its l is NaN (about 14 lines)
    float largest = -INFINITY, sum = 0, weighed = 0;
    for (int g = 0; g < thread.keys_at_once; ++g)
      largest = fmaxf(largest, m_smem[thread.place(g, row)]);
    for (int g = 0; g < thread.keys_at_once; ++g) {
      const int place = thread.place(g, row);
      const float weight = m_smem[place] == -INFINITY ? 0 : exp2f(m_smem[place] - largest);
      sum += weight * l_smem[place];
      weighed += weight * o_smem[place * C::kHeadDim + p];
    }
    parts.out(row_of_parts, s, c) = sum == 0 ? 0 : weighed / sum;
    if (p == 0) parts.lse(row_of_parts, s) = (largest + log2f(sum)) * kLn2;
    // END SOLUTION
  }
}

// A thread has a column.
template <class T>
__global__ void merge_kernel(Decode<T> pass, Parts parts) {
  const DecodeShape shape = pass.shape();
  const Index row = blockIdx.x, i = row % shape.queries;
  const Index h = row / shape.queries % shape.heads, b = row / shape.queries / shape.heads;
  const int c = static_cast<int>(threadIdx.x);
  // BEGIN SOLUTION task D.A for this row and column, over the parts that have keys. from_float<T>()
  //   rounds to the type of out. Thread 0 also stores lse (about 16 lines)
  const int length = pass.lengths(b);
  const int keys_each = keys_of_part(length, static_cast<int>(shape.page_size));
  const int count = (length + keys_each - 1) / keys_each;
  float m = -INFINITY, l = 0, o = 0;
  FLASH_UNROLL_BY(16)  // so many loads are on their way
  for (int s = 0; s < count; ++s) m = fmaxf(m, parts.lse(row, s));
  FLASH_UNROLL_BY(16)
  for (int s = 0; s < count; ++s) {
    const float lse = parts.lse(row, s);
    const float weight = lse == -INFINITY ? 0 : exp2f((lse - m) * kLog2E);
    l += weight;
    o += weight * parts.out(row, s, c);
  }
  pass.out(b, h, i, c) = from_float<T>(l == 0 ? 0 : o / l);
  if (c == 0) pass.lse(b, h, i) = m + logf(l);
  // END SOLUTION
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
    // BEGIN SOLUTION two launches on pass.stream: part_kernel with kThreads threads and
    //   kSharedBytes for each kv head of each part of each sequence, merge_kernel with head_dim
    //   threads for each row. grid_size() checks the number of blocks (about 13 lines)
    // STUB (void)scale;
    // STUB throw NotYetImplemented("decode.flash_decode_cuda");
    const Parts both{part_out.view(), part_lse.view()};
    launch("flash_decode_part", part_kernel<T, C>,
           {.grid = grid_size(shape.batch * parts * shape.kv_heads),
            .block = static_cast<unsigned>(C::kThreads),
            .shared_bytes = C::kSharedBytes,
            .stream = pass.stream},
           pass, scale, both);
    launch("flash_decode_merge", merge_kernel<T>,
           {.grid = grid_size(rows),
            .block = static_cast<unsigned>(C::kHeadDim),
            .stream = pass.stream},
           pass, both);
    // END SOLUTION
  });
}

}  // namespace flash

// The tests and benchmarks find your functions by this line: leave it the last one.
FLASH_TASK(FlashDecodeCudaTask)
