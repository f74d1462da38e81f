// Implements isa.hpp, and of ladder.hpp what depends on the instruction set.
#include "part2_flash_cpu/ladder/isa.hpp"

#include <cstdlib>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "part2_flash_cpu/ladder/ladder.hpp"

namespace flash {
namespace {

struct InstructionSet {
  const char* name;
  bool here;  // the processor has it
};

// In the order of chosen_isa(): the best last.
std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets{{"baseline", true}};
#ifdef FLASH_HAVE_AVX
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2");
  sets.push_back({"avx2", has_avx2});
  sets.push_back(
      {"avx512", has_avx2 && __builtin_cpu_supports("avx512f") &&
                     __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd")});
#endif
  return sets;
}

int choose() {
  const std::vector<InstructionSet> sets = instruction_sets();
  const char* const variable = std::getenv("FLASH_ISA");
  const std::string wanted = variable == nullptr ? "" : variable;
  std::string names;
  int best = 0;
  for (int isa = 0; isa < static_cast<int>(sets.size()); ++isa) {
    const InstructionSet& set = sets[static_cast<std::size_t>(isa)];
    if (set.name == wanted) {
      if (!set.here)
        throw Unsupported("FLASH_ISA is '" + wanted + "', which this processor does not have");
      return isa;
    }
    names += (names.empty() ? "" : ", ") + std::string(set.name);
    if (set.here) best = isa;
  }
  if (!wanted.empty())
    throw ArgumentError("FLASH_ISA is '" + wanted + "'; it must be one of: " + names);
  return best;
}

}  // namespace

int chosen_isa() {
  static const int isa = choose();
  return isa;
}

std::string ladder_isa() { return instruction_sets()[static_cast<std::size_t>(chosen_isa())].name; }

}  // namespace flash
