// TMA: one thread copies a box of a tensor between device and shared memory (Hopper). Addresses,
// bounds and the layout in shared memory come from a tensor map, which the host makes and a kernel
// takes as `const __grid_constant__ TensorMap`. A box is a matrix: 128 bytes of each of some
// neighbouring rows of one head. A load reads zeros where the box lies outside of the tensor, and a
// store writes nothing there. A box to be stored may end behind the tensor, but not begin before
// it: there a negative coordinate is an illegal instruction. A box to be loaded may do both.
//
// In shared memory a row of the box takes 128 bytes, and the box begins at a multiple of 1024. It
// is swizzled: chunk c of a row, 16 bytes, stands at place c ^ (row % 8).
//
//   tma_load      lands when `barrier` says so; announce the bytes first (mbarrier.hpp)
//   tma_prefetch  brings the box into the L2 cache, for a later load; nobody has to wait for it
//   tma_load_once, tma_store_once  the same for numbers that nobody reads again soon: the L2 cache
//                 gives up their lines first
//   tma_store     the thread makes a group of its stores by tma_commit(); tma_wait_read<N>() waits
//                 until at most N groups still read shared memory, tma_wait<N>() until at most N
//                 are not complete
//   A thread that wrote the box calls fence_proxy_async() before (warpgroup.hpp).
// Source: PTX ISA, "cp.async.bulk.tensor"; CUDA driver API, "cuTensorMapEncodeTiled".
#pragma once

#include <cuda_runtime.h>

#include "common/cuda/mbarrier.hpp"
#include "common/cuda/tensor_map.hpp"

namespace flash {

#ifdef FLASH_SIMT

[[gnu::always_inline]] inline void tma_load_once(void* to, const TensorMap& map, Barrier& barrier,
                                                 int column, int row, int head, int batch) {
  tma_load(to, map, barrier, column, row, head, batch);
}
[[gnu::always_inline]] inline void tma_store_once(const TensorMap& map, const void* from,
                                                  int column, int row, int head, int batch) {
  tma_store(map, from, column, row, head, batch);
}

#else

__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, Barrier& barrier,
                                         int column, int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];\n" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

// createpolicy.fractional.L2::evict_first for all lines.
inline constexpr std::uint64_t kEvictFirst = 0x12f0000000000000;

__device__ __forceinline__ void tma_load_once(void* to, const TensorMap& map, Barrier& barrier,
                                              int column, int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;\n" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(column), "r"(row), "r"(head), "r"(batch),
      "l"(kEvictFirst)
      : "memory");
}

__device__ __forceinline__ void tma_prefetch(const TensorMap& map, int column, int row, int head,
                                             int batch) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];\n" ::"l"(&map),
               "r"(column), "r"(row), "r"(head), "r"(batch)
               : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap& map, const void* from, int column,
                                          int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];\n" ::"l"(
          &map),
      "r"(shared_address(from)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

__device__ __forceinline__ void tma_store_once(const TensorMap& map, const void* from, int column,
                                               int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group.L2::cache_hint"
      " [%0, {%2, %3, %4, %5}], [%1], %6;\n" ::"l"(&map),
      "r"(shared_address(from)), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(kEvictFirst)
      : "memory");
}

__device__ __forceinline__ void tma_commit() {
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}
template <int N>
__device__ __forceinline__ void tma_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(N) : "memory");
}
template <int N>
__device__ __forceinline__ void tma_wait() {
  asm volatile("cp.async.bulk.wait_group %0;\n" ::"n"(N) : "memory");
}

#endif

}  // namespace flash
