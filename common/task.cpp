#include "common/task.hpp"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "common/error.hpp"

namespace flash {
namespace {

// "fused_softmax_matmul(...)", as the contract has it.
std::string demangled(const std::string& name) {
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr), std::free);
  std::string plain = text == nullptr ? name : text.get();
  for (std::size_t at; (at = plain.find("flash::")) != std::string::npos;) plain.erase(at, 7);
  return plain;
}

// Why dlopen() failed, with the name of a function that is missing as it stands in the source.
std::string why_not_loaded(const std::string& path, const std::string& said) {
  constexpr char kMissing[] = "undefined symbol: ";
  const std::size_t at = said.find(kMissing);
  if (at == std::string::npos) return path + " does not load: " + said;
  const std::string symbol = said.substr(at + sizeof kMissing - 1);
  return path + " uses " + demangled(symbol.substr(0, symbol.find_first_of(", ("))) +
         ", which it does not define; define it as the contract declares it";
}

}  // namespace

const void* load_task(const std::string& path, const char* id, const char* mangled_struct) {
  static std::mutex mutex;
  static std::map<std::string, TaskEntry> loaded;
  const std::lock_guard lock(mutex);
  if (const auto known = loaded.find(path); known != loaded.end() && known->second.id == id)
    return known->second.functions;
  // A name without a slash would be searched for in the system's folders.
  void* const library =
      dlopen(path.find('/') == std::string::npos ? ("./" + path).c_str() : path.c_str(),
             RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(why_not_loaded(path, dlerror()));
  auto* const entry = reinterpret_cast<TaskEntry (*)()>(dlsym(library, "flash_task"));
  if (entry == nullptr)
    throw Error("the last line of the file of task " + std::string(id) + " must be FLASH_TASK(" +
                demangled(mangled_struct) + "): " + path + " exports no flash_task");
  const auto [found, functions] = entry();
  if (std::string(id) != found)
    throw Error(path + " has task " + found + "; it must have task " + id);
  loaded[path] = {id, functions};
  return functions;
}

std::string TaskLibraries::path(std::string task) const {
  return prefix + task.replace(task.find('.'), 1, "_") + suffix;
}

}  // namespace flash
