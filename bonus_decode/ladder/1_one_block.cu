// Rung 1: one thread block walks all keys of a row of q.
//
// This is how attention of many queries divides its work, and what one writes first: a thread block
// for each (sequence, head, query). Each warp takes 4 keys at a time, a lane takes every 32nd
// column of them, and each warp has an online softmax of its own. When the keys are used up, the
// thread block merges its 8 triples (m, l, o) in shared memory.
//
// With one sequence of 32 heads there are 32 thread blocks, so an H100 with 132 multiprocessors has
// nothing to do on 100 of them, and each of the others has 256 threads where there is room for
// 2048. A multiprocessor cannot have enough loads on their way to fetch more than a small part of
// what the memory delivers. That part does not become larger if the sequence becomes longer. Only a
// larger batch helps. In a ragged batch the longest sequence decides, and at the end its blocks are
// the only ones.
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

template <class T>
void run(const Decode<T>& pass) {
  const float scale = checked_scale(pass);
  const DecodeShape shape = pass.shape();
  decode::with_config<T>(shape.head_dim, [&]<class C>(C) {
    launch("decode_one_block", one_block_kernel<T, C::kHeadDim>,
           {.grid = grid_size(shape.batch * shape.heads * shape.queries),
            .block = kThreads,
            .stream = pass.stream},
           pass, scale);
  });
}

}  // namespace

FLASH_ENTER(registry, name) {
  registry.decode.add(
      {.name = name,
       .device = DeviceKind::kGpu,
       .run = {.float32 = run<float>, .float16 = run<Half>, .bfloat16 = run<BFloat16>},
       .unsupported = why_not,
       .best = false});
}

}  // namespace flash::decode_one_block
