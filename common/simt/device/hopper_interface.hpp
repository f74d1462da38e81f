// The functions that device/hopper.hpp calls: what Hopper's own instructions are to the emulator.
#pragma once

#include <cstdint>

#include "common/simt/device/kernel_interface.hpp"

namespace flash::simt {

FLASH_EXPORT std::uint32_t shared_address(const void* memory);

FLASH_EXPORT void mbarrier_init(void* barrier, int arrivals);
FLASH_EXPORT void mbarrier_init_fence();
FLASH_EXPORT void mbarrier_arrive(void* barrier, int bytes);
FLASH_EXPORT bool mbarrier_test(void* barrier, int parity);
FLASH_EXPORT void mbarrier_wait(void* barrier, int parity, Site site);

// Of a box's first element: column, row, head, batch.
struct BoxPlace {
  int coordinate[4];
};
FLASH_EXPORT void tma_load(void* to, const void* map, void* barrier, const BoxPlace& place);
FLASH_EXPORT void tma_store(const void* map, const void* from, const BoxPlace& place, bool add);
FLASH_EXPORT void tma_commit();
// `complete`: until they are complete, else until shared memory has been read.
FLASH_EXPORT void tma_wait(int groups, bool complete);

struct WgmmaCall {
  float* d;
  const std::uint32_t* a_registers;  // nullptr: A's descriptor is `a`
  std::uint64_t a, b;
  int n;
  bool is_half;  // else bfloat16
  bool transpose_b, accumulate;
  Site site;
};
FLASH_EXPORT void wgmma(const WgmmaCall& call);
FLASH_EXPORT void wgmma_fence();
FLASH_EXPORT void wgmma_commit();
FLASH_EXPORT void wgmma_wait(int groups);

FLASH_EXPORT void set_registers(int count, bool takes, Site site);
FLASH_EXPORT void fence_proxy_async();

// Counts the thread at a named barrier. With `waits`, returns when all have come: whether any of
// them gave a predicate that holds.
struct NamedBarrierCall {
  const char* name;  // as in the source: "sync_named"
  int id, threads;
  bool waits, predicate;
  Site site;
};
FLASH_EXPORT bool named_barrier(const NamedBarrierCall& call);

}  // namespace flash::simt
