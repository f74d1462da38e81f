// Implements symbols.hpp on binutils' readelf.
#include "common/simt/symbols.hpp"

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "common/simt/device/kernel_interface.hpp"

namespace flash::simt {
namespace {

// "flash::(anonymous namespace)::kernel(float*)::tile" -> "tile"
std::string last_name(const std::string& mangled) {
  int failed = 0;
  char* const demangled = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &failed);
  std::string name = failed == 0 && demangled != nullptr ? demangled : mangled;
  std::free(demangled);
  const std::size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

struct Variable {
  std::string mangled;
  std::size_t begin, bytes;
};

struct Symbols {
  std::vector<Variable> thread_locals;
  std::map<std::uintptr_t, std::string> functions;  // by offset in the file, mangled
};

Symbols read_symbols(const Module& module) {
  Symbols found;
  read_lines("readelf -sW", module, [&](const std::string& line) {
    // Num: Value Size Type Bind Vis Ndx Name
    std::istringstream words(line);
    std::string number, value, size, type, bind, visibility, index, name;
    words >> number >> value >> size >> type >> bind >> visibility >> index >> name;
    if (index == "UND") return;
    const std::size_t begin = std::strtoull(value.c_str(), nullptr, 16),
                      bytes = std::strtoull(size.c_str(), nullptr, 0);
    if (type == "TLS") found.thread_locals.push_back({name, begin, bytes});
    if (type == "FUNC") found.functions[begin] = name;
  });
  return found;
}

const Symbols& symbols_of(const Module& module) {
  static std::mutex mutex;
  static std::map<const Module*, Symbols> known;
  const std::scoped_lock lock(mutex);
  const auto [found, is_new] = known.try_emplace(&module);
  if (is_new) found->second = read_symbols(module);
  return found->second;
}

}  // namespace

Symbol thread_local_symbol(const Module& module, std::size_t offset) {
  for (const Variable& variable : symbols_of(module).thread_locals)
    if (offset >= variable.begin && offset < variable.begin + variable.bytes)
      return {last_name(variable.mangled), variable.begin};
  return {};
}

std::size_t static_shared_bytes(const Module& module, const void* kernel) {
  const Symbols& symbols = symbols_of(module);
  const auto function =
      symbols.functions.find(reinterpret_cast<std::uintptr_t>(kernel) - module.base);
  if (function == symbols.functions.end()) return 0;
  const std::string& name = function->second;
  // Itanium ABI: Z function E name; a function of extern "C" as its length and name.
  const std::string prefix =
      "_ZZ" + (name.starts_with("_Z") ? name.substr(2) : std::to_string(name.size()) + name) + "E";
  std::size_t bytes = 0;
  for (const Variable& variable : symbols.thread_locals)
    if (variable.mangled.starts_with(prefix)) bytes += variable.bytes;
  return bytes;
}

bool is_builtin_variable(const void* address) {
  for (const uint3* variable : {&threadIdx, &blockIdx, &blockDim, &gridDim})
    if (address >= variable && address < variable + 1) return true;
  return false;
}

}  // namespace flash::simt
