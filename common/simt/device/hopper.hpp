// What only Hopper has, on the emulator: mbarrier.hpp, tma.hpp, wgmma.hpp, warpgroup.hpp and
// shared_address.hpp of common/cuda, with the same names and the same meaning. The models behind
// them are in common/simt: mbarrier.hpp, tma.hpp, wgmma.hpp, warpgroup.hpp.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/cuda/tensor_map.hpp"
#include "common/half.hpp"
#include "common/simt/device/hopper_interface.hpp"
#include "common/simt/include/cuda_runtime_api.h"  // __forceinline__

namespace flash {

// ---- shared_address.hpp -------------------------------------------------------------------------

__forceinline__ std::uint32_t shared_address(const void* memory) {
  return simt::shared_address(memory);
}

// ---- mbarrier.hpp -------------------------------------------------------------------------------

struct alignas(8) Barrier {
  std::uint64_t bits;  // its state is the emulator's
};

__forceinline__ void init(Barrier& barrier, int arrivals) {
  simt::mbarrier_init(&barrier, arrivals);
}
__forceinline__ void fence_barrier_init() { simt::mbarrier_init_fence(); }
__forceinline__ void arrive(Barrier& barrier) { simt::mbarrier_arrive(&barrier, 0); }
__forceinline__ void arrive_expecting(Barrier& barrier, int bytes) {
  simt::mbarrier_arrive(&barrier, bytes);
}
__forceinline__ bool has_ended(Barrier& barrier, int parity) {
  return simt::mbarrier_test(&barrier, parity);
}
__forceinline__ void wait(Barrier& barrier, int parity, simt::Site site = simt::Site::here()) {
  simt::mbarrier_wait(&barrier, parity, site);
}

// ---- tma.hpp ------------------------------------------------------------------------------------

__forceinline__ void tma_prefetch(const TensorMap&, int, int, int, int) {}  // no cache here
__forceinline__ void tma_load(void* to, const TensorMap& map, Barrier& barrier, int column, int row,
                              int head, int batch) {
  simt::tma_load(to, &map, &barrier, {column, row, head, batch});
}
__forceinline__ void tma_store(const TensorMap& map, const void* from, int column, int row,
                               int head, int batch) {
  simt::tma_store(&map, from, {column, row, head, batch}, false);
}
__forceinline__ void tma_add(const TensorMap& map, const void* from, int column, int row, int head,
                             int batch) {
  simt::tma_store(&map, from, {column, row, head, batch}, true);
}
__forceinline__ void tma_commit() { simt::tma_commit(); }
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

__forceinline__ MatrixDescriptor matrix_descriptor(const void* tile, int leading, int stride) {
  const auto encode = [](std::uint32_t bytes) __attribute__((always_inline)) {
    return static_cast<std::uint64_t>((bytes & 0x3ffff) >> 4);
  };
  return {encode(shared_address(tile)) | encode(static_cast<std::uint32_t>(leading)) << 16 |
          encode(static_cast<std::uint32_t>(stride)) << 32 | std::uint64_t{1} << 62};
}

__forceinline__ void wgmma_fence() { simt::wgmma_fence(); }
__forceinline__ void wgmma_commit() { simt::wgmma_commit(); }
template <int N>
__forceinline__ void wgmma_wait() {
  simt::wgmma_wait(N);
}

// The shapes of wgmma_shapes.inc, so that what compiles here compiles for a GPU.
template <int N>
inline constexpr bool kHasWgmmaShape = false;
#define FLASH_WGMMA_SHAPE(n, ...) \
  template <>                     \
  inline constexpr bool kHasWgmmaShape<n> = true;
#include "common/cuda/wgmma_shapes.inc"
#undef FLASH_WGMMA_SHAPE

template <int N, class T, bool kTransposeB = false, class A>
__forceinline__ void wgmma(float (&d)[N / 2], const A& a, MatrixDescriptor b, bool accumulate,
                           simt::Site site = simt::Site::here()) {
  static_assert(kHasWgmmaShape<N>, "common/cuda/wgmma_shapes.inc does not list this N");
  static_assert(std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>);
  simt::WgmmaCall call{.d = d,
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
    call.a_registers = a;
  }
  simt::wgmma(call);
}

// ---- warpgroup.hpp ------------------------------------------------------------------------------

template <int COUNT>
__forceinline__ void give_registers(simt::Site site = simt::Site::here()) {
  static_assert(COUNT % 8 == 0 && COUNT >= 24 && COUNT <= 256);
  simt::set_registers(COUNT, false, site);
}
template <int COUNT>
__forceinline__ void take_registers(simt::Site site = simt::Site::here()) {
  static_assert(COUNT % 8 == 0 && COUNT >= 24 && COUNT <= 256);
  simt::set_registers(COUNT, true, site);
}

__forceinline__ void sync_named(int id, int threads, simt::Site site = simt::Site::here()) {
  simt::named_barrier({"sync_named", id, threads, true, false, site});
}
__forceinline__ void arrive_named(int id, int threads, simt::Site site = simt::Site::here()) {
  simt::named_barrier({"arrive_named", id, threads, false, false, site});
}
__forceinline__ bool any_named(int id, int threads, bool predicate,
                               simt::Site site = simt::Site::here()) {
  return simt::named_barrier({"any_named", id, threads, true, predicate, site});
}

__forceinline__ void fence_proxy_async() { simt::fence_proxy_async(); }

}  // namespace flash
