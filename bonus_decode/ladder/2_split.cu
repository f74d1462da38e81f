// Rung 2: the keys of a sequence are divided among thread blocks, and a second kernel merges.
//
// New: a thread block has a part of the keys of a row of q, as the handout divides them, so that
// also one long sequence fills the card: 131072 keys are 32 parts, with 32 heads 1024 thread
// blocks. On an H100 they now take 1.4 ms, not 13. 64 sequences of 4096 keys take 2.6 ms, not 2.3:
// they filled the card before.
//
// What is missing: each key and value is loaded as often as there are rows of q for it, here 4
// times. The head changes fastest among the thread blocks, so these loads come at about the same
// time, and the L2 cache can serve most of them. But each is a load of only 2 bytes a lane. The
// solution takes 0.22 ms: it loads each key once into shared memory, for all rows of its group, in
// pieces of 16 bytes and one tile ahead (cp.async).
#include "bonus_decode/ladder/one_row.hpp"

namespace flash::decode_split {
namespace {

using namespace decode_row;
using decode::Parts;

template <class T, int kHeadDim>
__global__ void __launch_bounds__(kThreads) split_kernel(Decode<T> pass, float scale, Parts parts) {
  const DecodeShape shape = pass.shape();
  // The rows of a sequence, then the part, then the sequence.
  const int of_sequence = static_cast<int>(shape.heads * shape.queries);
  const int x = static_cast<int>(blockIdx.x), s = x / of_sequence % parts.per_sequence();
  const Index number = x / of_sequence / parts.per_sequence() * of_sequence + x % of_sequence;
  const Row row(shape, number);
  const int length = pass.lengths(row.b);
  const int keys_each = decode::keys_of_part(length, static_cast<int>(shape.page_size));
  const int begin = s * keys_each;
  if (begin >= length) return;
  attend<kHeadDim>(pass, scale, row, begin, begin + keys_each, [&](int c, Result result) {
    parts.out(number, s, c) = result.out;
    if (c == 0) parts.lse(number, s) = result.lse;
  });
}

template <class T>
__global__ void merge_parts_kernel(Decode<T> pass, Parts parts) {
  const DecodeShape shape = pass.shape();
  const Index number = blockIdx.x;
  const Row row(shape, number);
  const int length = pass.lengths(row.b), c = static_cast<int>(threadIdx.x);
  const int keys_each = decode::keys_of_part(length, static_cast<int>(shape.page_size));
  const Result result = merged((length + keys_each - 1) / keys_each, [&](int s) {
    return Sums{parts.lse(number, s) * kLog2E, 1, parts.out(number, s, c)};
  });
  pass.out(row.b, row.h, row.i, c) = from_float<T>(result.out);
  if (c == 0) pass.lse(row.b, row.h, row.i) = result.lse;
}

}  // namespace

FLASH_ENTER(registry, name) {
  enter(registry, name, []<class C>(C, const auto& pass, Index rows, float scale) {
    const Index parts = decode::parts_of_longest(pass.shape());
    const DeviceTensor<float, 3> out({rows, parts, C::kHeadDim}, pass.stream);
    const DeviceTensor<float, 2> lse({rows, parts}, pass.stream);
    const Parts both{out.view(), lse.view()};
    launch("decode_split", split_kernel<typename C::T, C::kHeadDim>,
           {.grid = grid_size(rows * parts), .block = kThreads, .stream = pass.stream}, pass, scale,
           both);
    launch("decode_merge_parts", merge_parts_kernel<typename C::T>,
           {.grid = grid_size(rows),
            .block = static_cast<unsigned>(C::kHeadDim),
            .stream = pass.stream},
           pass, both);
  });
}

}  // namespace flash::decode_split
