#include <dlfcn.h>

#include "common/cuda/device_tensor.hpp"
#include "emulator/run/simt.hpp"
#include "mutants/mutants.hpp"

namespace flash::mutants {
namespace {

// The message of the error that the launch ends with, or "".
std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const KernelError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

std::vector<Mutant> mutants_in(const std::string& library, const char* name) {
  void* const found = dlsym(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL), name);
  if (found == nullptr) throw Error(library + " has no " + name);
  std::vector<Mutant> list;
  reinterpret_cast<void (*)(std::vector<Mutant>&)>(found)(list);
  return list;
}

std::vector<std::string> judge(const std::function<void()>& run) {
  const simt::Schedule schedules[] = {
      {simt::Order::kForward, 1}, {simt::Order::kReverse, 1}, {simt::Order::kRandom, 1}};
  std::vector<std::string> wrong;
  for (int number = 0; number < 3; ++number) {
    simt::set_schedule(schedules[number]);
    if (const std::string error = error_of(run); !error.empty()) {
      wrong = {"The kernel is wrong as it stands, mend that first: " + error};
      break;
    }
    for (const Mutant& mutant : all()) {
      if (mutant.number % 3 != number || (mutant.in_header && !*mutant.reached)) continue;
      *mutant.switched_off = mutant.number;
      const std::string error = error_of(run);
      *mutant.switched_off = -1;
      const std::string place = mutant.place + ", " + mutant.text;
      using enum simt::FindingKind;
      const auto says = [&error](simt::FindingKind kind) {
        return error.find(std::string(": ") + to_string(kind)) != std::string::npos;
      };
      const bool has_race = says(kRace) || says(kAsyncCopy) || says(kFence);
      const bool found = has_race || says(kDeadlock) || says(kWrongArgument) ||
                         says(kWarpgroupMismatch) || says(kUninitialized);
      if (mutant.excuse.empty() && !found)
        wrong.push_back("The checks find nothing without " + place + ": remove it, or say there " +
                        "`// no race without it: REASON`" +
                        (error.empty() ? "" : ". What they do find: " + error));
      if (!mutant.excuse.empty() && has_race)
        wrong.push_back("The excuse is wrong: the checks do find a mistake without " + place +
                        ": " + error);
    }
  }
  simt::set_schedule({});
  return wrong;
}

}  // namespace flash::mutants
