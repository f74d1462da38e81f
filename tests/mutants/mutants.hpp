// A .cu file without one of its barriers: what the copies that mutants.py makes define, and the
// test that runs them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/export.hpp"

namespace flash::mutants {

// A call that can be switched off: a barrier, or the atomicity of an addition.
struct Mutant {
  int number;
  int line;
  std::string text;    // of the line
  std::string excuse;  // why the checks cannot find a race without it; empty if they have to
};

// The calls of the file that are compiled for the emulator.
FLASH_EXPORT std::vector<Mutant> all();

// The number of the call that is left out; -1 if none is.
FLASH_EXPORT extern int switched_off;

// Runs the kernels of the file, so that every one of its barriers matters.
void run_kernels();

// Runs the kernels as they are, then each mutant, under several schedules. Returns what is wrong,
// one sentence each: an error without a mutation, or a mutant for which the checks report no race.
std::vector<std::string> judge(const std::function<void()>& run);

#ifdef FLASH_SIMT
template <int kNumber, class T>
__device__ __forceinline__ T atomic_add(T* to, T x) {
  if (switched_off != kNumber) return atomicAdd(to, x);
  const T old = *to;
  *to = old + x;
  return old;
}
#endif

}  // namespace flash::mutants
