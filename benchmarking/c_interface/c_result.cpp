// Implements c_result.h: compiled into each of the C libraries.
#include <cstdio>

#include "benchmarking/c_interface/c_interface.hpp"

namespace flash {
namespace {

// An array, not a string: when memory has run out there is none for the message either.
thread_local char last_error[1024] = "";

}  // namespace

// C's stdio: the streams of C++ crash in PyTorch's process.
int failed(int result, const char* what) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s", what);
  return result;
}

}  // namespace flash

const char* flash_last_error(void) { return flash::last_error; }
