// The warps of a block, and the operations in which their lanes meet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/headers/device/kernel_interface.hpp"
#include "emulator/run/turns.hpp"

namespace flash::simt {

class Worker;

inline constexpr unsigned kWarpSize = 32, kWarpgroupSize = 128;

class Warps {
 public:
  explicit Warps(Worker& worker) : worker_(worker) {}

  void start_block(unsigned threads);
  // The running thread comes to an operation; returns when its lanes have met.
  void come(const WarpCall& call);
  void thread_returns(unsigned thread);
  // The threads have met at the block's barrier: what they did in their warps is over.
  void barrier();
  // Where two lanes of a warp last met in an operation that orders memory, since the block's
  // barrier; nullptr: nowhere.
  const Site* last_sync(unsigned a, unsigned b) const;

 private:
  // Lanes of one warp that wait in the same operation.
  struct Group {
    WarpCall call{};
    std::uint32_t arrived = 0;
  };
  struct Warp {
    std::uint32_t alive = 0;
    std::array<void*, kWarpSize> slots{};
    std::vector<Group> groups;
    Site synced{};  // of the last operation since the block's barrier that ordered memory
    std::uint32_t synced_lanes = 0;
  };

  void complete_if_all_there(unsigned warp, std::size_t group);

  Worker& worker_;
  std::array<Warp, kMostThreads / kWarpSize> warps_{};
};

}  // namespace flash::simt
