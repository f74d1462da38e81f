// A .cu file without one of its barriers: what the copies that mutants.py makes define, and the
// test that runs them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/export.hpp"

namespace flash {
struct Registry;
}

namespace flash::mutants {

// A call that can be switched off: a barrier, or the atomicity of an addition.
struct Mutant {
  int number;
  std::string place;   // FILE:LINE
  std::string text;    // of the line
  std::string excuse;  // why the checks cannot find a race without it; empty if they have to
  bool in_header;      // where other files may be the ones that call it
  int* switched_off;   // of its file: the number of the call that is left out; -1 if none is
  const bool* reached;
};

// The calls that are compiled for the emulator, of the file that a test is about: what
// flash_mutants_FILE() gives, which its copy defines.
std::vector<Mutant> all();
// The same of a library that is not linked: by the name of its function.
std::vector<Mutant> mutants_in(const std::string& library, const char* name);

// Runs the kernels of the file, so that every one of its barriers matters.
void run_kernels();

// Runs the passes of the rung `name`, each in one of its element types, on the problems of
// launches.hpp that it takes.
void run_entries(const Registry& registry, const std::string& name);

// Runs the kernels as they are under three schedules, and each mutant under one of them: the checks
// find a race in whatever order the threads run (tests/emulator holds that). Returns what is wrong,
// one sentence each: an error of the kernel as it stands, or a mutant for which the checks report
// no race.
std::vector<std::string> judge(const std::function<void()>& run);

#ifdef FLASH_SIMT
template <class T>
__device__ __forceinline__ T add(bool is_atomic, T* to, T x) {
  if (is_atomic) return atomicAdd(to, x);
  const T old = *to;
  *to = old + x;
  return old;
}
#endif

}  // namespace flash::mutants
