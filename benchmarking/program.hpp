// What every benchmark's main() does.
#pragma once

#include <vector>

namespace flash {

// Calls run(argc, argv) and returns what it does. An exception becomes one line on stderr and an exit status: 2 for a wrong command line,
// 128 + the signal's number for Interrupted, 1 for everything else.
int run_program(int argc, char** argv, int (*run)(int argc, char** argv)) noexcept;

// The value below which a share of `values` lies (0.5: the median), of the values themselves, without interpolation. At least one.
double quantile(std::vector<double> values, double share);

}  // namespace flash
