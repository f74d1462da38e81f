// Who judges races is told by the scheduler who runs, and what orders the threads of a block. The checks are one such judge
// (checker.hpp); tests/simt has another, libtsan, and compares.
#pragma once

#include <cstdint>

#include "common/export.hpp"

namespace flash::simt {

class Witness {
 public:
  virtual ~Witness() = default;

  // A block of `threads` threads starts, and ends. One at a time; they are all of one launch until end_launch().
  virtual void start_block(unsigned threads) = 0;
  virtual void end_block() = 0;
  virtual void end_launch() {}

  // From here on it is the turn of this thread of the block.
  virtual void running(unsigned thread) = 0;

  // All threads have met; these lanes of a warp have, in an operation that orders memory.
  virtual void barrier() = 0;
  virtual void warp_sync(unsigned warp, std::uint32_t lanes) = 0;
};

// Puts a witness in the place of the checks, for the checked launches that follow; nullptr: the checks again.
FLASH_EXPORT void set_witness(Witness* witness);

}  // namespace flash::simt
