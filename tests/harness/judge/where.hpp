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
  int caller = 0;  // the line in which all of it was called; 0: it is nobody's call in the file

  bool is_same(const Spot& other) const {
    return file == other.file && caller == other.caller && first <= other.last &&
           other.first <= last;
  }
};

// "at FILE:12", or "in the lines 12 to 15 of FILE, called in line 40".
std::string to_string(const Spot& spot);

// Of a library that a file in a folder skeleton/ or solution/ was compiled to: nothing where none
// of its lines was seen. Of several threads that counts which was busy.
std::optional<Spot> spot_of(const std::string& library, const std::vector<Where>& seen,
                            std::uint64_t busiest);

}  // namespace flash::grading
