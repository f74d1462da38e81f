// Rung 1: one thread block walks all keys of a row of q.
//
// This is how attention of many queries divides its work: a thread block for each (sequence, head,
// query). one_row.hpp has what it does; in the end it merges the triples (m, l, o) of its 8 warps.
//
// With one sequence of 32 heads 100 of the 132 multiprocessors of an H100 have nothing to do, and
// each of the others has 256 threads where there is room for 2048: too few to keep enough loads on
// their way. 131072 keys (8 kv heads of 128, bfloat16) take 13 ms on an H100, and the memory needs
// 0.18 ms for them. 256 sequences of 1024 keys are twice as many bytes, and take 2.1 ms, because
// they fill the card.
#include "bonus_decode/ladder/one_row.hpp"

namespace flash::decode_one_block {
namespace {

using namespace decode_row;

template <class T, int kHeadDim>
__global__ void __launch_bounds__(kThreads) one_block_kernel(Decode<T> pass, float scale) {
  const Row row(pass.shape(), blockIdx.x);
  attend<kHeadDim>(pass, scale, row, 0, pass.lengths(row.b), [&](int c, Result result) {
    pass.out(row.b, row.h, row.i, c) = from_float<T>(result.out);
    if (c == 0) pass.lse(row.b, row.h, row.i) = result.lse;
  });
}

}  // namespace

FLASH_ENTER(registry, name) {
  enter(registry, name, []<class C>(C, const auto& pass, Index rows, float scale) {
    launch("decode_one_block", one_block_kernel<typename C::T, C::kHeadDim>,
           {.grid = grid_size(rows), .block = kThreads, .stream = pass.stream}, pass, scale);
  });
}

}  // namespace flash::decode_one_block
