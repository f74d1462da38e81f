// Implements other_task.hpp.
#include "harness/other_task.hpp"

#include "common/error.hpp"

#ifdef __linux__
#include <dlfcn.h>
#endif

namespace flash::harness {

void* symbol_of_other_task([[maybe_unused]] const std::string& task,
                           [[maybe_unused]] const char* mangled_name) {
#ifdef __linux__
  std::string name = "lib" + task + "_" + implementation();
  name.replace(name.find('.'), 1, "_");
  if (const std::string how = backend(); how == "emulated" || how == "checked") name += "_" + how;
  // Found where this program finds its own library.
  if (void* const library = dlopen((name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (void* const symbol = dlsym(library, mangled_name)) return symbol;
    throw Error(name + ".so has no " + mangled_name);
  }
#endif
  throw NotYetImplemented(task);
}

}  // namespace flash::harness
