// Mistakes of a softmax whose keys are divided: the groups of lanes of a thread block each have an
// online softmax over some keys of a part, whose sums are merged, and then the parts are merged.
#pragma once

#include <vector>

#include "harness/diagnosis/mistakes.hpp"

namespace flash::harness {

struct SplitSizes {
  Index keys_each;            // of a part
  Index tile, groups;         // keys of a tile; groups of lanes: group g has every groups-th key
  Index of_warp;              // groups of a warp
  Index chunk, columns;       // columns that a lane has side by side, of how many
};

void add_split_mistakes(std::vector<Mistake>& known, const SplitSizes& sizes);

}  // namespace flash::harness
