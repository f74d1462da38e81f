// Implements other_task.hpp.
#include "harness/cases/other_task.hpp"

#include "common/error.hpp"

#ifdef __linux__
#include <dlfcn.h>

#include <filesystem>
#endif

namespace flash::harness {

void* symbol_of_other_task([[maybe_unused]] const std::string& task,
                           [[maybe_unused]] const char* mangled_name) {
#ifdef __linux__
  std::string name = "lib" + task + "_" + implementation();
  name.replace(name.find('.'), 1, "_");
  if (const std::string how = backend(); how == "emulated" || how == "checked") name += "_" + how;
  // By its path: under AddressSanitizer dlopen() does not know where this program's libraries are.
  const std::filesystem::path build =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  const std::string path = build / "lib" / (name + ".so");
  if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (void* const symbol = dlsym(library, mangled_name)) return symbol;
    throw Error(path + " has no " + mangled_name);
  }
#endif
  throw NotYetImplemented(task);
}

}  // namespace flash::harness
