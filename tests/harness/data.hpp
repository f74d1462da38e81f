// The data of attention problems: cases take them, and probes of a diagnosis.
#pragma once

namespace flash::harness {

// What makes the scores of a problem hard; v is N(0, 1) where nothing else is said. Pattern
// (common/inputs.hpp) says what most of them find.
enum class Data {
  kNormal,         // N(0, 1), with BFloat16's columns of v: exponent_of_column()
  kHalfNormal,     // N(0, 0.5^2), v too: what the course's sources take
  kLargeScores,    // to about +-200
  kRising,         // by 300 in every row
  kVeryNegative,   // near -1000
  kEqual,          // in each row
  kOneHot,         // each query is close to one key
  kSignature,      // equal scores, and Pattern::kKeySignature in v
  kMinusInfinity,  // the first third of the keys has scores of -inf, in the last head all keys:
                   // forward only (dQ would be 0 * inf)
  kLowest,  // scores of -1.2e9, all equal: also less than what a mask may put in place of -inf.
            // Forward only, float32 or wider
  kTiny,
  kHuge,  // 2^-40 and 2^40 times N(0, 1) in q and k, for a scale that makes up for it
  kEdge,  // scores of 2^127 for the first key and of -2^127 for the others, times the scale, which
          // has to be 1 or -1. Forward only, float32 or wider
  kFarApart,       // 150 more or 150 less, row by row
  kSmallIntegers,  // N(0, 1) rounded, v too: what one can follow by hand
  kNaN,  // N(0, 1) with a NaN in one element of v in each head: the rows that see it become NaN
  kNaNInScores,  // N(0, 1) with a NaN in one element of q and one of k in each head
};

}  // namespace flash::harness
