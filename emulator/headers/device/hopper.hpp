// What only Hopper has, on the emulator: the names of mbarrier.hpp, tma.hpp, wgmma.hpp,
// warpgroup.hpp and shared_address.hpp of common/cuda, with the same meaning. The models behind
// them are in emulator/hopper.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/half.hpp"
#include "emulator/headers/cuda_runtime_api.h"  // __forceinline__
#include "emulator/headers/device/kernel_interface.hpp"

namespace flash {
struct TensorMap;  // 128 bytes
}

namespace flash::simt {

// Writes a TensorMap of boxes of `box_rows` rows of 128 bytes. Dimensions and strides are those of
// columns, rows, heads, batch, in this order.
FLASH_EXPORT void encode_tensor_map(unsigned char* bits, const void* data, int element_bytes,
                                    const std::int64_t (&extents)[4],
                                    const std::int64_t (&byte_strides)[4], int box_rows);

// `complete`: until the groups are complete, else until shared memory has been read.
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
FLASH_EXPORT void wgmma_wait(int groups);
FLASH_EXPORT void set_registers(int count, bool takes, Site site);

}  // namespace flash::simt

namespace flash::simt::ptx {

FLASH_EXPORT std::uint32_t shared_address(const void* memory);

// ---- mbarrier.hpp -------------------------------------------------------------------------------

struct alignas(8) Barrier {
  std::uint64_t bits;  // its state is the emulator's
};

FLASH_EXPORT void init(Barrier& barrier, int arrivals);
FLASH_EXPORT void fence_barrier_init();
FLASH_EXPORT void arrive(Barrier& barrier);
FLASH_EXPORT void arrive_expecting(Barrier& barrier, int bytes);
FLASH_EXPORT void wait(Barrier& barrier, int parity, Site site = Site::here());

// ---- tma.hpp ------------------------------------------------------------------------------------

inline void tma_prefetch(const TensorMap&, int, int, int, int) {}  // no cache here
FLASH_EXPORT void tma_load(void* to, const TensorMap& map, Barrier& barrier, int column, int row,
                           int head, int batch);
FLASH_EXPORT void tma_store(const TensorMap& map, const void* from, int column, int row, int head,
                            int batch);
FLASH_EXPORT void tma_commit();
template <int N>
__forceinline__ void tma_wait_read() {
  simt::tma_wait(N, false);
}
template <int N>
__forceinline__ void tma_wait() {
  simt::tma_wait(N, true);
}

// ---- wgmma.hpp ----------------------------------------------------------------------------------

struct MatrixDescriptor {
  std::uint64_t bits;
};

FLASH_EXPORT MatrixDescriptor matrix_descriptor(const void* tile, int leading, int stride);
FLASH_EXPORT void wgmma_fence();
FLASH_EXPORT void wgmma_commit();
template <int N>
__forceinline__ void wgmma_wait() {
  simt::wgmma_wait(N);
}

template <int N, class T, bool kTransposeB = false, class A>
__forceinline__ void wgmma(float (&d)[N / 2], const A& a, MatrixDescriptor b, bool accumulate,
                           Site site = Site::here()) {
  static_assert(N % 16 == 0 && N >= 16 && N <= 256, "common/cuda/wgmma_shapes.inc has no such N");
  static_assert(std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>);
  must_be_own("wgmma", site, d, sizeof d);
  WgmmaCall call{.d = d,
                 .a_registers = nullptr,
                 .a = 0,
                 .b = b.bits,
                 .n = N,
                 .is_half = std::is_same_v<T, Half>,
                 .transpose_b = kTransposeB,
                 .accumulate = accumulate,
                 .site = site};
  if constexpr (std::is_same_v<A, MatrixDescriptor>) {
    call.a = a.bits;
  } else {
    static_assert(std::is_same_v<A, std::uint32_t[4]>, "A is a descriptor, or 4 registers");
    must_be_own("wgmma", site, a, sizeof a);
    call.a_registers = a;
  }
  simt::wgmma(call);
}

// ---- warpgroup.hpp ------------------------------------------------------------------------------

template <int COUNT>
__forceinline__ void give_registers(Site site = Site::here()) {
  static_assert(COUNT % 8 == 0 && COUNT >= 24 && COUNT <= 256);
  set_registers(COUNT, false, site);
}
template <int COUNT>
__forceinline__ void take_registers(Site site = Site::here()) {
  static_assert(COUNT % 8 == 0 && COUNT >= 24 && COUNT <= 256);
  set_registers(COUNT, true, site);
}

FLASH_EXPORT void sync_named(int id, int threads, Site site = Site::here());
FLASH_EXPORT void arrive_named(int id, int threads, Site site = Site::here());
FLASH_EXPORT void fence_proxy_async();

}  // namespace flash::simt::ptx
