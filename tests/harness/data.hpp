// The data of attention problems: cases take them, and probes of a diagnosis.
#pragma once

namespace flash::harness {

// What makes the scores of a problem hard; v is N(0, 1) where nothing else is said.
enum class Data {
  kNormal,        // N(0, 1)
  kHalfNormal,    // N(0, 0.5^2), v too: what the course's sources take
  kLargeScores,   // scores to about +-200: exp overflows and underflows unless the maximum is
                  // subtracted
  kRising,        // every row rises by 300: each block of keys brings a new maximum, and exp of a
                  // score less the first block's maximum overflows
  kVeryNegative,  // scores near -1000: exp gives 0 for a whole row unless the maximum is subtracted
  kEqual,         // all scores of a row are equal: every visible key weighs the same
  kOneHot,        // each query is close to one key, and its row of P is close to one 1
  kSignature,  // equal scores; row j of v has 1 + (j mod 13) / 13 in column j mod head_dim, else 0:
               // shows which keys were counted
  kMinusInfinity,  // the first third of the keys has scores of -inf, in the last head all keys:
                   // forward only (dQ would be 0 * inf)
  kLowest,  // scores of -1.2e9, all equal: less than what a running maximum may start at, or a mask
            // may put in place of -inf (Pattern::kLowest says why not less). Forward only, float32
            // or wider
  kTiny,
  kHuge,  // 2^-40 and 2^40 times N(0, 1) in q and k, for a scale that makes up for it
  kEdge,  // scores of 2^127 for the first key and of -2^127 for the others, times the scale, which
          // has to be 1 or -1. Forward only, float32 or wider
  kFarApart,  // each row's scores are near 150 or near -150: of two rows whose distance is a power
              // of 2 some differ by 300
  kSmallIntegers,  // N(0, 1) rounded, v too: what one can follow by hand
  kNaN,  // N(0, 1) with a NaN in one element of v in each head: the rows that see it become NaN
  kNaNInScores,  // N(0, 1) with a NaN in one element of q and one of k in each head
};

}  // namespace flash::harness
