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

#include "harness/data.hpp"
#include "harness/diagnosis/seen.hpp"
#include "harness/verdict.hpp"

namespace flash::harness {

// Another problem for the code under test, with the options of the case that failed.
struct Probe {
  AttentionShape shape;
  Data data;
  double fill = kPoisoned;   // of the outputs
  Index block = 0;           // of queries and of keys, where a call is told; 0: as in the case
  bool shares_none = false;  // of its tensors among heads or batches
};

// Success if `wrong` is "", else a failure with its explanation. `again` runs the code under test.
template <class Seen>
Verdict explained(const std::string& wrong, const Seen& seen,
                  const std::function<Seen(const Probe&)>& again);

}  // namespace flash::harness
