// Hopper's own instructions in the block that a worker runs, and what their models share.
#pragma once

#include <cstdint>
#include <string>

#include "emulator/hopper/mbarrier.hpp"
#include "emulator/hopper/tma.hpp"
#include "emulator/hopper/warpgroup.hpp"
#include "emulator/hopper/wgmma.hpp"
#include "emulator/run/observers.hpp"

namespace flash::simt {

class Hopper final : public Units {
 public:
  explicit Hopper(Worker& worker) : worker_(worker) {}

  void thread_returns() override;
  void block_ends() override {
    mbarriers.block_ends();
    registers.block_ends();
  }
  bool something_completes() override { return tma.land_waited_for(); }
  void explain_deadlock() override;

 private:
  Worker& worker_;

 public:
  Mbarriers mbarriers{worker_};
  Tma tma{worker_, mbarriers};
  Meetings meetings{worker_};
  Wgmma wgmma{worker_, meetings};
  NamedBarriers named_barriers{worker_};
  RegisterPool registers{worker_, meetings};
};

// The address in the shared memory window. Ends the kernel with a finding if `memory` is elsewhere:
// `what` was given it.
std::uint32_t shared_address_of(Worker& worker, const void* memory, const char* what,
                                std::uintptr_t pc);

// Where the 16 bytes at a window address are in a tile of rows of 128 bytes with the 128-byte
// swizzle: bits 4 to 6 of the address, the place in the row, are changed by bits 7 to 9, the row.
constexpr std::uint32_t swizzled(std::uint32_t address) { return address ^ (address >> 3 & 0x70); }

}  // namespace flash::simt
