// Mistakes of a softmax whose keys are divided: the groups of lanes of a thread block each have an
// online softmax over some keys of a part, whose sums are merged, and then the parts are merged.
// Merging alone is a softmax, too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/diagnosis/mistakes.hpp"

namespace flash::harness {

struct SplitSizes {
  Index keys_each;     // of a part
  Index tile, groups;  // keys of a tile; groups of lanes: group g has every groups-th key
  Index of_warp;       // groups of a warp
  Index chunk;         // columns that a lane has side by side
};

void add_split_mistakes(std::vector<Mistake>& known, const SplitSizes& sizes);

// Those of a merge as softmax(X) V, where each row is a batch of its own whose keys are the parts.
// `held` is V with what empty parts hold.
void add_merge_mistakes(std::vector<Mistake>& known, const std::shared_ptr<Tensor<double, 4>>& held,
                        double fill);

// What is said of that softmax(X) V, in the words of parts.
std::string in_words_of_parts(std::string text);

}  // namespace flash::harness
