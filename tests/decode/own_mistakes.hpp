// Names mistakes of decoding: a sequence's keys, taken out of their pages, make the wrong result
// one of attention (diagnosis.hpp). What pages, groups and parts alone make possible is added.
#pragma once

#include "common/tensor.hpp"
#include "harness/diagnosis/seen.hpp"

namespace flash::decode_cases {

// A cache in float64, and how its keys are cut up.
struct SeenCache {
  Tensor<double, 4> k, v;
  Tensor<std::int32_t, 2> block_table;
  Tensor<std::int32_t, 1> lengths;
  Index first;      // of the sequences that were seen
  Index chunk;      // elements of 16 bytes
  Index keys_each;  // of a part
  bool nan_behind;  // the cache, else numbers
};

// Completes `seen`, which has all but the keys and values.
void add_keys(harness::SeenForward& seen, const SeenCache& cache);

}  // namespace flash::decode_cases
