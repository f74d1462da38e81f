// Where the code is, for the report: when the program crashes, and whenever a thread gets SIGUSR2
// (./lab sends it to one that does not come to an end).
//
//   {"event":"library","path":".../libpart1_fused_cpu_skeleton.so","base":140187732541440}
//   {"event":"where","thread":4711,"addresses":[140187732545001,...]}
//
// The addresses are those behind the calls, the innermost first; tools/lab/where.py makes lines of
// them.
#pragma once

#include <string>

namespace flash::harness {

// To the end of this report; an empty path writes nothing.
void report_places_to(const std::string& report);

// From here on until somebody else handles these signals, as Catch2 does before each of its tests.
void report_crashes();

}  // namespace flash::harness
