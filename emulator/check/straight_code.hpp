// How often the lanes of a warp run each piece of straight code, in a library that `./lab profile`
// has compiled with counters (tools/lab/arithmetic.py): arithmetic by source line, lanes that take
// another way than their neighbours, and what warps do between two barriers.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "emulator/run/counts.hpp"

namespace flash::simt {

class StraightCode {
 public:
  // The block has not begun: what ran before was the host's.
  void start_block();
  // `thread` has run until now.
  void ran(unsigned thread);
  // The threads have met, or the block has ended: how much work the slowest warp has done since
  // they met before, and the mean of all.
  Counted meet(unsigned threads);
  void end_block();

 private:
  struct Piece {
    std::uint64_t lanes = 0, warps = 0;  // of the block: times that lanes ran it; the slowest lanes
    std::vector<std::uint32_t> of_lane{};  // since the threads met
  };
  std::map<std::size_t, Piece> pieces_;  // those that were run
};

}  // namespace flash::simt
