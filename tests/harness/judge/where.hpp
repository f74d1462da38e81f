// Where a student's code is: in which line it crashed, or in which lines it goes round.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/judge/process.hpp"

namespace flash::grading {

struct Spot {
  std::string file;
  int first = 0, last = 0;  // lines
  int caller = 0;           // the line that called all of it; 0: no line of the file did

  bool is_same(const Spot& other) const {
    return file == other.file && caller == other.caller && first <= other.last &&
           other.first <= last;
  }
};

// "at FILE:12", or "in the lines 12 to 15 of FILE, called in line 40".
std::string to_string(const Spot& spot);

// The spot in the file of skeleton/ or solution/ that the library was compiled from; nothing if no
// line of it was seen. If several threads were seen, the busiest one counts.
std::optional<Spot> spot_of(const std::string& library, const std::vector<Where>& seen,
                            std::uint64_t busiest);

}  // namespace flash::grading
