// What a synchronization passes on: up to which times the accesses of others are ordered before
// whoever learns it. Times are those of the Checker's clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace flash::simt {

// What a thread learned through atomic operations: up to which times the accesses of a block
// (identified by its start), and of a single thread, are ordered before it.
struct Knowledge {
  std::map<std::uint32_t, std::uint32_t> blocks;
  std::map<std::pair<std::uint32_t, unsigned>, std::uint32_t> threads;

  bool empty() const { return blocks.empty() && threads.empty(); }
  void merge(const Knowledge& other);
};

// Those that access memory: the threads of a block by their numbers, and from kFirstAgent on
// *agents*, which do it asynchronously: the copies that land at an mbarrier, the stores of a
// thread, the wgmma of a warpgroup. Beyond the most, agents share the last number.
inline constexpr unsigned kFirstAgent = 1024, kMostActors = 1280;

// What the arrivals at a barrier pass on to those who wait for it: accesses of an actor before
// times[actor].
struct SyncClock {
  std::vector<std::uint32_t> times;  // of kMostActors; empty: nothing
  Knowledge told;
};

}  // namespace flash::simt
