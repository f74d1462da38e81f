// Implements other_task.hpp.
#include "harness/other_task.hpp"

#include "common/error.hpp"

#ifdef __linux__
#include <dlfcn.h>
#include <link.h>

namespace flash::harness {
namespace {

// The start of a library's name: "libpart2_flash_forward_skeleton".
std::string library_of(std::string task) {
  task.replace(task.find('.'), 1, "_");
  return "lib" + task + "_" + implementation();
}

}  // namespace

void* symbol_of_other_task(const std::string& own, const std::string& other,
                           const char* mangled_name) {
  struct Search {
    std::string name, path;
  } search{"/" + library_of(own), ""};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& [name, path] = *static_cast<Search*>(data);
        const std::string candidate = info->dlpi_name;
        if (candidate.rfind(name) != std::string::npos) path = candidate;
        return 0;
      },
      &search);
  const std::size_t at = search.path.rfind(search.name);
  if (at == std::string::npos) throw NotYetImplemented(other);
  search.path.replace(at, search.name.size(), "/" + library_of(other));
  void* const library = dlopen(search.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw NotYetImplemented(other);
  void* const symbol = dlsym(library, mangled_name);
  if (symbol == nullptr) throw Error(search.path + " has no " + mangled_name);
  return symbol;
}

}  // namespace flash::harness
#else
namespace flash::harness {

void* symbol_of_other_task(const std::string&, const std::string& other, const char*) {
  throw NotYetImplemented(other);
}

}  // namespace flash::harness
#endif
