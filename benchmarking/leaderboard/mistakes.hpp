// What is wrong with a result.
#pragma once

#include <cstdint>

namespace flash::leaderboard {

// What is farther from the wanted value than bound * magnitude + absolute + relative * |value|. NaN
// is.
struct Mistakes {
  std::int64_t count = 0, first = 0;
  double got = 0, wanted = 0;  // of the first
};

}  // namespace flash::leaderboard
