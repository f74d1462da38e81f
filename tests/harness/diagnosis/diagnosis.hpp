// Names a mistake: compares a wrong result with what the oracle's formulas give in float64 with one
// mistake built in, or two.
//
// A mistake is named when what it gives equals the result, in rows that are wrong and in rows that
// are right, no other known mistake gives the same, and what the code under test then gives for
// other problems (probes) is what the mistake gives there too. A wrong name would be worse than
// none. mistakes.cpp has the mistakes and their words, computation.cpp the formulas.
#pragma once

#include <functional>
#include <string>

#include "harness/cases/attention_data.hpp"
#include "harness/cases/graded_case.hpp"
#include "harness/diagnosis/seen.hpp"

namespace flash::harness {

// Another problem for the code under test, with the options of the case that failed.
struct Probe {
  AttentionShape shape;
  Data data;
  double fill = kPoisoned;  // of the outputs
  Index block = 0;          // of queries and of keys, where a call is told; 0: as in the case
};

// Success where `wrong` is ""; a failure, and how to explain it. `again` runs the code under test.
template <class Seen>
Verdict explained(const std::string& wrong, const Seen& seen,
                  const std::function<Seen(const Probe&)>& again);

}  // namespace flash::harness
