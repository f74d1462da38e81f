// What threads tell each other by atomic operations after a __threadfence().
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/run/worker.hpp"

namespace flash::simt {

// Up to which times the accesses of an actor of a block (identified by its start) are ordered
// before a thread.
class Knowledge {
 public:
  static constexpr unsigned kAllThreads = ~0u;  // an actor: each thread of the block

  bool empty() const { return known_.empty(); }
  // In ascending order of block and actor.
  void append(std::uint32_t block, unsigned actor, std::uint32_t time) {
    known_.push_back({{block, actor}, time});
  }
  void merge(const Knowledge& other);
  // Whether it says that what an actor of the block did at `time` is ordered before.
  bool covers(std::uint32_t block, unsigned actor, std::uint32_t time) const;

 private:
  struct Known {
    std::pair<std::uint32_t, unsigned> actor;  // with its block
    std::uint32_t time;
  };
  static bool is_before(const Known& a, const Known& b) { return a.actor < b.actor; }

  std::vector<Known> known_;  // by actor: it is merged far more often than it grows
};

class Releases {
 public:
  void start_launch();
  void start_block();
  // All threads meet; these lanes of a warp do.
  void barrier();
  void warp_sync(unsigned first, std::uint32_t lanes);

  void fence(unsigned thread, std::uint32_t time) { fenced_[thread] = time; }
  std::uint32_t last_fence(unsigned thread) const { return fenced_[thread]; }  // 0: none

  // The thread learns what was published at an address, or elsewhere.
  void learn(unsigned thread, const void* address, bool is_global);
  void learn(unsigned thread, const Knowledge& told);
  // What is published at an address.
  Knowledge& at(const void* address, bool is_global);
  // Adds what a thread has learned, since the last barrier and (`all`) before it.
  void add_learned(unsigned thread, bool all, Knowledge& told) const;

  bool any() const { return any_; }  // published in this launch
  bool covers(unsigned thread, std::uint32_t block, unsigned actor, std::uint32_t time) const;

 private:
  std::array<std::uint32_t, kMostThreads> fenced_{};  // at the last __threadfence(); 0: none
  std::unordered_map<const void*, Knowledge> global_, shared_;  // by address
  bool any_ = false;
  std::unordered_map<unsigned, Knowledge> learned_;  // by thread, since the last barrier
  Knowledge learned_by_all_;                         // before it
};

// Calls use(lane) for each lane in a mask.
template <class Use>
void for_each_lane(std::uint32_t lanes, Use use) {
  for (; lanes != 0; lanes &= lanes - 1) use(static_cast<unsigned>(__builtin_ctz(lanes)));
}

}  // namespace flash::simt
