// wgmma (common/cuda/wgmma.hpp) in the block that a worker runs.
//
// A product is made as late as it may: when the first thread of the warpgroup waits for it. From
// wgmma() on, the registers of D hold NaN, and a thread gets its part back at its own wait.
//
// A descriptor says where element (row, column) of a k16 step lies. K-major (A, and B by columns):
// start + row / 8 * stride + row % 8 * 128 + 2 k. MN-major (B by rows, transposed): start + n / 64
// * leading + k / 8 * stride + k % 8 * 128 + 2 (n % 64). Then the swizzle: hopper.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <vector>

#include "emulator/headers/device/hopper.hpp"
#include "emulator/hopper/warpgroup.hpp"

namespace flash::simt {

class Worker;

class Wgmma {
 public:
  Wgmma(Worker& worker, Meetings& meetings) : worker_(worker), meetings_(meetings) {}

  // What the running thread calls, from code at `pc`.
  void issue(const WgmmaCall& call, std::uintptr_t pc);
  void commit();
  void fence();
  void wait(int groups, std::uintptr_t pc);
  void thread_returns();

 private:
  // A matrix D (64, n) in flight, row by row, and where its threads have it.
  struct Accumulator {
    int n;
    std::array<float*, kWarpgroupSize> registers{};
    std::array<bool, kWarpgroupSize> in_flight{};  // from wgmma() to the thread's wait
    std::uint64_t last = 0;                        // the number of the last product for it
    std::uintptr_t pc = 0;                         // from where that was issued
    std::vector<float> values;
  };
  struct Product {
    WgmmaCall call;
    Accumulator* d;
    std::array<std::array<std::uint32_t, 4>, kWarpgroupSize> a_registers;
    std::uintptr_t pc;
  };
  struct Thread {
    std::uint64_t issued = 0;             // products
    std::vector<std::uint64_t> groups{};  // how many had been issued at each commit not waited for
  };
  struct Warpgroup {
    std::array<const WgmmaCall*, kWarpgroupSize> calls{};  // of the threads that have come
    std::array<Thread, kWarpgroupSize> threads{};
    std::list<Accumulator> accumulators{};
    std::deque<Product> products{};  // not made
    std::uint64_t made = 0;
    unsigned agent = 0;                  // 0: none yet
    std::vector<std::uint32_t> times{};  // of the checks, a product each
  };

  Warpgroup& mine();
  unsigned lane_of_warpgroup() const;
  Accumulator& accumulator_of(Warpgroup& warpgroup, const WgmmaCall& call);
  void check(Warpgroup& warpgroup, const WgmmaCall& call, std::uintptr_t pc);
  void make(const Product& product);
  void decode_a(const Product& product, float (&A)[64][16]);
  // The 16 bytes at an address in the shared memory window.
  const char* tile_memory(const WgmmaCall& call, const char* operand, std::uint32_t address);

  Worker& worker_;
  Meetings& meetings_;
  std::array<Warpgroup, kMostWarpgroups> warpgroups_{};
};

}  // namespace flash::simt
