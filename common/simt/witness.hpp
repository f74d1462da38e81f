// What the scheduler tells a judge of races: which thread runs, and what orders the threads of a
// block. The checks (checker.hpp) are one judge; tests/simt compares them with another, libtsan.
#pragma once

#include <cstdint>

#include "common/export.hpp"

namespace flash::simt {

class Witness {
 public:
  virtual ~Witness() = default;

  // A block starts and ends. Blocks run one at a time, and belong to one launch until end_launch().
  virtual void start_block(unsigned threads) = 0;
  virtual void end_block() = 0;
  virtual void end_launch() {}

  // From now on this thread of the block runs.
  virtual void running(unsigned thread) = 0;

  // All threads have met; or these lanes of a warp, in an operation that orders memory.
  virtual void barrier() = 0;
  virtual void warp_sync(unsigned warp, std::uint32_t lanes) = 0;
};

// Replaces the checks in later checked launches; nullptr brings the checks back.
FLASH_EXPORT void set_witness(Witness* witness);

}  // namespace flash::simt
