// Built-in functions that public kernels use: each against the number that CUDA's manual says.
#include <cooperative_groups.h>

#include "common/cuda/check.hpp"
#include "emulator/corpus/launches.hpp"

namespace flash::simt_corpus {
namespace {

RIGHT(matches, ({1, 32}, IS(7), result(32)), unsigned* out) {
  const unsigned lane = threadIdx.x;
  const unsigned any = __match_any_sync(kAllLanes, lane % 4);
  int all = 0;
  const unsigned same = __match_all_sync(kAllLanes, 1.5, &all);
  int not_all = 1;
  const unsigned none = __match_all_sync(kAllLanes, static_cast<long long>(lane), &not_all);
  out[lane] = (any == 0x11111111u << lane % 4) + 2 * (same == kAllLanes && all == 1) +
              4 * (none == 0 && not_all == 0);
}

RIGHT(bitwise_reductions, ({1, 32}, IS(7), result(32)), unsigned* out) {
  const unsigned lane = threadIdx.x;
  out[lane] = (__reduce_and_sync(kAllLanes, lane | 64) == 64u) +
              2 * (__reduce_or_sync(kAllLanes, lane) == 31u) +
              4 * (__reduce_xor_sync(kAllLanes, lane + 1) == 32u);
}

RIGHT(bitwise_atomics, ({1, 64}, IS(1), result(64)), unsigned* out) {
  __shared__ unsigned with_and, with_or, with_xor, with_dec;
  if (threadIdx.x == 0) {
    with_and = ~0u;
    with_or = with_xor = 0;
    with_dec = 5;
  }
  __syncthreads();
  atomicAnd(&with_and, ~(1u << threadIdx.x % 32));
  atomicOr(&with_or, 1u << threadIdx.x % 32);
  atomicXor(&with_xor, 1u << threadIdx.x % 32);
  atomicDec(&with_dec, 9u);
  __syncthreads();
  out[threadIdx.x] = with_and + ~with_or + with_xor + with_dec;
}

RIGHT(loads_and_stores, ({1, 32}, IS(i / 4), counting(32), result(128)), const float* x,
      float* out) {
  __stwb(out + 4 * threadIdx.x, __ldca(x + threadIdx.x));
  __stwt(out + 4 * threadIdx.x + 1, __ldcv(x + threadIdx.x));
  __stcg(out + 4 * threadIdx.x + 2, __ldcg(x + threadIdx.x));
  __stcs(out + 4 * threadIdx.x + 3, __ldcs(x + threadIdx.x));
}

RIGHT(copies_of_known_sizes, ({1, 32}, IS(i < 16 ? 0 : i), counting(80), result(80)), const int* x,
      int* out) {
  __shared__ int tile[80];
  if (threadIdx.x == 0) {
    memset(tile, 0, 64);
    memcpy(tile + 16, x + 16, 256);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < 80; i += 32) out[i] = tile[i];
}

// A tile whose size is an argument.
RIGHT(tile_of_any_size, ({1, 64}, IS(i / 8 * 8 + 7 - i % 8), result(64), 8u), int* out,
      unsigned size) {
  namespace cg = cooperative_groups;
  __shared__ int shared[64];
  const cg::thread_group block = cg::this_thread_block();
  const auto tile = cg::tiled_partition(block, size);
  const unsigned i = threadIdx.x, first = i - tile.thread_rank();
  shared[i] = static_cast<int>(i);
  tile.sync();
  out[i] = shared[first + tile.size() - 1 - tile.thread_rank()];
}

// A function for any group.
__device__ int sum_of(cooperative_groups::thread_group group, int* shared, int value) {
  const unsigned i = group.thread_rank();
  for (unsigned half = static_cast<unsigned>(group.size()) / 2; half > 0; half /= 2) {
    shared[i] = value;
    group.sync();
    if (i < half) value += shared[i + half];
    group.sync();
  }
  return value;
}
RIGHT(group_as_an_argument, ({1, 64}, IS(i < 2 ? 2016 : 496 + 1024 * (i - 2)), result(4)),
      int* out) {
  namespace cg = cooperative_groups;
  __shared__ int shared[64];
  const int i = static_cast<int>(threadIdx.x);
  const cg::thread_block block = cg::this_thread_block();
  const auto warp = cg::tiled_partition<32>(block);
  const int of_block = sum_of(block, shared, i);
  const int of_warp = sum_of(warp, shared + i / 32 * 32, i);
  if (i == 0) out[0] = out[1] = of_block;
  if (i % 32 == 0) out[2 + i / 32] = of_warp;
}

__global__ void doubles(int* managed) { managed[threadIdx.x] *= 2; }

const Listed doubles_listed(Group::kRight, "doubles", __FILE__, std::nullopt, [] {
  int *managed = nullptr, *pinned = nullptr;
  FLASH_CUDA_CHECK(cudaMallocManaged(&managed, 32 * sizeof(int)));
  FLASH_CUDA_CHECK(cudaMallocHost(&pinned, 32 * sizeof(int)));
  for (int i = 0; i < 32; ++i) managed[i] = i;
  launch("doubles", doubles, {1, 32}, managed);
  FLASH_CUDA_CHECK(cudaDeviceSynchronize());
  bool is_right = managed[31] == 62;
  FLASH_CUDA_CHECK(cudaMemcpy(pinned, managed, 32 * sizeof(int), cudaMemcpyDeviceToHost));
  is_right = is_right && pinned[30] == 60;
  FLASH_CUDA_CHECK(cudaFree(managed));
  FLASH_CUDA_CHECK(cudaFreeHost(pinned));
  return is_right;
});

}  // namespace
}  // namespace flash::simt_corpus
