// Implements program.hpp.
#include "benchmarking/program.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <iostream>

#include "benchmarking/interrupt.hpp"
#include "benchmarking/options.hpp"
#include "common/error.hpp"

namespace flash {

int run_program(int argc, char** argv, int (*run)(int argc, char** argv)) noexcept {
  try {
    return run(argc, argv);
  } catch (const OptionError& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 2;
  } catch (const Interrupted& interrupted) {
    std::cerr << "interrupted: nothing of this run was saved\n";
    return 128 + interrupted.signal;
  } catch (const NotYetImplemented& missing) {
    std::cerr << "task " << missing.task() << " is not started, and every time is taken with it; next: ./lab check "
              << missing.task() << " (or ./lab bench --solution)\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}

double quantile(std::vector<double> values, double share) {
  const auto place = values.begin() + std::lround(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace flash
