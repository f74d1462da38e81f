// Implements isa.hpp, and of ladder.hpp what depends on the instruction set.
#include "part2_flash_cpu/ladder/isa.hpp"

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "part2_flash_cpu/ladder/ladder.hpp"
#include "part2_flash_cpu/ladder/parallel.hpp"

namespace flash {

// Each is defined by a file in per_isa/, which is compiled for each of them.
#define FLASH_DECLARE_KERNELS(isa)                      \
  namespace isa {                                       \
  extern const Kernels<float> vectorised_float;         \
  extern const Kernels<double> vectorised_double;       \
  extern const Kernels<float> register_blocked_float;   \
  extern const Kernels<double> register_blocked_double; \
  }
FLASH_DECLARE_KERNELS(baseline)
#ifdef FLASH_HAVE_AVX
FLASH_DECLARE_KERNELS(avx2)
FLASH_DECLARE_KERNELS(avx512)
#endif

namespace {

struct InstructionSet {
  const char* name;
  bool here;  // the processor has it
  const Kernels<float>*vectorised_float, *register_blocked_float;
  const Kernels<double>*vectorised_double, *register_blocked_double;
};

#define FLASH_INSTRUCTION_SET(isa, here)                                                                                     \
  InstructionSet {                                                                                                           \
#isa, here, &isa::vectorised_float, &isa::register_blocked_float, &isa::vectorised_double, &isa::register_blocked_double \
  }

// The best last.
std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets{FLASH_INSTRUCTION_SET(baseline, true)};
#ifdef FLASH_HAVE_AVX
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512cd");
  sets.push_back(FLASH_INSTRUCTION_SET(avx2, has_avx2));
  sets.push_back(FLASH_INSTRUCTION_SET(avx512, has_avx512));
#endif
  return sets;
}

InstructionSet chosen() {
  const std::vector<InstructionSet> sets = instruction_sets();
  const char* const wanted = std::getenv("FLASH_ISA");
  std::string names;
  InstructionSet best = sets.front();
  for (const InstructionSet& set : sets) {
    if (wanted != nullptr && set.name == std::string(wanted)) {
      if (!set.here) throw Unsupported(std::string("FLASH_ISA is '") + wanted + "', which this processor does not have");
      return set;
    }
    names += (names.empty() ? "" : ", ") + std::string(set.name);
    if (set.here) best = set;
  }
  if (wanted != nullptr && *wanted != '\0')
    throw ArgumentError(std::string("FLASH_ISA is '") + wanted + "'; it must be one of: " + names);
  return best;
}

const InstructionSet& instruction_set() {
  static const InstructionSet set = chosen();
  return set;
}

template <class T>
double peak(const Kernels<T>& kernels, double milliseconds) {
  using Clock = std::chrono::steady_clock;
  const int threads = ladder_threads();
  std::vector<double> flops(static_cast<std::size_t>(threads));
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(milliseconds));
  parallel_for(threads, [&](Index task) {
    do flops[static_cast<std::size_t>(task)] += kernels.multiply_adds();
    while (Clock::now() < end);
  });
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  double all = 0;
  for (const double each : flops) all += each;
  return all / seconds * 1e-9;
}

}  // namespace

template <>
const Kernels<float>& vectorised_kernels() {
  return *instruction_set().vectorised_float;
}
template <>
const Kernels<double>& vectorised_kernels() {
  return *instruction_set().vectorised_double;
}
template <>
const Kernels<float>& register_blocked_kernels() {
  return *instruction_set().register_blocked_float;
}
template <>
const Kernels<double>& register_blocked_kernels() {
  return *instruction_set().register_blocked_double;
}

std::string ladder_isa() { return instruction_set().name; }

double fma_peak_gflops(DType dtype, double milliseconds) {
  if (dtype == DType::kFloat32) return peak(register_blocked_kernels<float>(), milliseconds);
  if (dtype == DType::kFloat64) return peak(register_blocked_kernels<double>(), milliseconds);
  throw ArgumentError("dtype is " + to_string(dtype) + "; it must be float32 or float64");
}

}  // namespace flash
