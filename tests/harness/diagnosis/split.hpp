// Mistakes of a softmax whose keys are divided: the groups of lanes of a thread block each have an
// online softmax over some keys of a part, whose sums are merged, and then the parts are merged.
// Merging alone is a softmax, too.
#pragma once

#include <vector>

#include "harness/diagnosis/diagnosis.hpp"
#include "harness/diagnosis/mistakes.hpp"

namespace flash::harness {

struct SplitSizes {
  Index keys_each;       // of a part
  Index tile, groups;    // keys of a tile; groups of lanes: group g has every groups-th key
  Index of_warp;         // groups of a warp
  Index chunk, columns;  // columns that a lane has side by side, of how many
};

void add_split_mistakes(std::vector<Mistake>& known, const SplitSizes& sizes);

// A merge of parts, part_out (parts, rows, columns) and part_lse (1, parts, rows), as softmax(X) V:
// each row is a batch of its own, whose keys are the parts. out and lse are to be filled in.
SeenForward seen_merge(const Tensor<float, 3>& part_out, const Tensor<float, 3>& part_lse,
                       double bound, double fill);

// As explained(), in the words of parts.
Verdict explained_merge(const std::string& wrong, const SeenForward& seen,
                        const std::function<SeenForward(const Probe&)>& again);

}  // namespace flash::harness
