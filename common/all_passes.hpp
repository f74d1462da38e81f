// All passes that a program is linked with. The build generates the function
// (cmake/FlashRegistry.cmake).
#pragma once

#include "common/registry.hpp"

namespace flash {

void enter_all_passes(Registry& registry);
extern const char *const kTasksPrefix, *const kTasksSuffix;

inline Registry all_passes() {
  Registry registry;
  registry.tasks = {kTasksPrefix, kTasksSuffix};
  enter_all_passes(registry);
  return registry;
}

}  // namespace flash
