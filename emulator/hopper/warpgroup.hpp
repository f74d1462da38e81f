// What the warpgroups of a block share out (common/cuda/warpgroup.hpp): named barriers and
// registers; and how the 128 threads of a warpgroup meet.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/check/clocks.hpp"
#include "emulator/headers/device/kernel_interface.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

inline constexpr unsigned kMostWarpgroups = kMostThreads / kWarpgroupSize;

// Operations that all threads of a warpgroup come to.
class Meetings {
 public:
  explicit Meetings(Worker& worker) : worker_(worker) {}

  // The running thread comes to an operation. True for the last one of its warpgroup: it acts for
  // all, then calls release(). The others return when that has happened.
  bool come(const char* what, Site site);
  void release();

  // The first thread of the running thread's warpgroup.
  unsigned first() const;

  // Whether a warpgroup waits for threads that have returned, or that wait in an operation of
  // their warp or their block. Gives its place.
  bool is_stuck(Site& site) const;

 private:
  struct Meeting {
    const char* what = nullptr;
    Site site{};
    std::bitset<kWarpgroupSize> arrived{};
  };
  Meeting& mine();

  Worker& worker_;
  std::array<Meeting, kMostWarpgroups> meetings_{};
};

class NamedBarriers {
 public:
  explicit NamedBarriers(Worker& worker) : worker_(worker) {}

  // Counts the running thread. With `waits`, returns when all have come.
  void come(const char* name, int id, int threads, bool waits, Site site);
  std::string what_is_missing() const;

 private:
  struct NamedBarrier {
    int threads = 0, arrived = 0;  // in this phase
    Site site{};                   // of the first that came
    std::vector<unsigned> waiting{};
    SyncClock clock{};  // for the checks
  };

  Worker& worker_;
  std::array<NamedBarrier, 16> barriers_{};
};

class RegisterPool {
 public:
  // At the start all registers are shared out evenly, in steps of 8.
  RegisterPool(Worker& worker, Meetings& meetings);

  void set(int count, bool takes, Site site);
  void block_ends();

 private:
  Worker& worker_;
  Meetings& meetings_;
  std::array<int, kMostWarpgroups> held_{};  // by each thread of a warpgroup
  Site taken_at_{};                          // the last take_registers(); empty: none
};

}  // namespace flash::simt
