// Clusters: kClusterBlocks neighbouring thread blocks that run at the same time and reach each
// other's shared memory (Hopper). A kernel with FLASH_CLUSTER in front of its __launch_bounds__
// has them; its grid is a multiple of kClusterBlocks.
//
//   sync_cluster         all threads of the cluster's blocks that have not ended meet
//   arrive_in_cluster    arrives at the barrier that `block` has at the place of `barrier`. It
//                        orders what TMA and wgmma do, but no ordinary access. An arrival that does
//                        (.release.cluster) takes 1000 clocks: ptxas adds a fence of the whole GPU
//   tma_load_to_cluster  a tma_load() whose box comes to the same place in all blocks, and arrives
//                        at the barrier of each
//
// The emulator runs one block after the other. A cluster is one block there, so a missing
// sync_cluster() is not found. Source: PTX ISA, "barrier.cluster", "mapa",
// "cp.async.bulk.tensor".
#pragma once

#include "common/cuda/tma.hpp"

namespace flash {

#ifdef FLASH_SIMT

inline constexpr int kClusterBlocks = 1;
#define FLASH_CLUSTER

[[gnu::always_inline]] inline void sync_cluster() {}
[[gnu::always_inline]] inline void arrive_in_cluster(Barrier& barrier, int) { arrive(barrier); }
[[gnu::always_inline]] inline void tma_load_to_cluster(void* to, const TensorMap& map,
                                                       Barrier& barrier, int column, int row,
                                                       int head, int batch) {
  tma_load(to, map, barrier, column, row, head, batch);
}

#else

inline constexpr int kClusterBlocks = 2;
#define FLASH_CLUSTER __cluster_dims__(2, 1, 1)

__device__ __forceinline__ void sync_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}

__device__ __forceinline__ void arrive_in_cluster(Barrier& barrier, int block) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(shared_address(&barrier)),
      "r"(block)
      : "memory");
}

__device__ __forceinline__ void tma_load_to_cluster(void* to, const TensorMap& map,
                                                    Barrier& barrier, int column, int row, int head,
                                                    int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;\n" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(column), "r"(row), "r"(head), "r"(batch),
      "h"(static_cast<std::uint16_t>((1 << kClusterBlocks) - 1))
      : "memory");
}

#endif

}  // namespace flash
