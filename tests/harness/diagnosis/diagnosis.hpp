// Names a mistake: compares a wrong result with attention in float64 in which one step, or two, are
// replaced by wrong ones (mistakes.hpp). A mistake is named if all of this holds:
// - What it gives equals the result, in rows that are wrong and in rows that are right.
// - No other known mistake gives the same.
// - On other problems (probes), too, the code under test gives what the mistake gives there.
//
// A wrong name would be worse than none.
#pragma once

#include <functional>
#include <string>

#include "harness/diagnosis/seen.hpp"

namespace flash::harness {

// A mistake that explains a wrong result.
struct Diagnosis {
  std::string name;       // "accumulator not rescaled"; "" where none is known to be it
  std::string text;       // what a student reads; also where several mistakes are possible
  std::string kind = {};  // of the mistake: its hint's name in hints.toml
};

// What a case found out. `text` tells a student what is wrong; when the case passes, it may say how
// large the errors are. `diagnose` is called after the verdict is in the report, because it may
// call the code under test again, and that may crash.
struct Verdict {
  bool pass = false;
  std::string text;
  std::function<Diagnosis()> diagnose = {};
  std::function<std::string()> explain = {};  // with small numbers (small_problem.hpp); likewise
};

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

// Another problem for the code under test, with the options of the case that failed.
struct Probe {
  AttentionShape shape;
  Data data;
  double fill = kPoisoned;  // of the outputs
  Index block = 0;          // of queries and of keys, where a call is told; 0: as in the case
};

// Success if `wrong` is "", else a failure with its explanation. `again` runs the code under test.
template <class Seen>
Verdict explained(const std::string& wrong, const Seen& seen,
                  const std::function<Seen(const Probe&)>& again);

}  // namespace flash::harness
