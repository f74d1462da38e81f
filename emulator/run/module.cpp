// Implements module.hpp on the dynamic linker's list of loaded libraries and on binutils'
// addr2line and readelf.
#include "emulator/run/module.hpp"

#include <cxxabi.h>
#include <link.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <vector>

#include "common/error.hpp"
#include "emulator/run/simt.hpp"

extern "C" void* __tls_get_addr(void*);

namespace flash::simt {
namespace {

struct Search {
  std::uintptr_t address;
  std::unique_ptr<Module> found;
};

int look_at(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  auto module = std::make_unique<Module>();
  module->begin = ~std::uintptr_t{0};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD) {
      module->begin = std::min(module->begin, begin);
      module->end = std::max(module->end, begin + segment.p_memsz);
    } else if (segment.p_type == PT_TLS) {
      module->thread_local_id = info->dlpi_tls_modid;
      module->thread_local_bytes = segment.p_memsz;
      module->thread_local_alignment = segment.p_align;
      module->thread_local_initializer = segment.p_filesz > 0;
    }
  }
  if (search.address < module->begin || search.address >= module->end) return 0;
  module->base = info->dlpi_addr;
  module->path = info->dlpi_name;
  if (module->path.empty()) {  // the program itself
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    if (length > 0) module->path.assign(path, static_cast<std::size_t>(length));
  }
  search.found = std::move(module);
  return 1;
}

CodePlace looked_up(const Module& module, std::uintptr_t address) {
  char command[64];
  std::snprintf(command, sizeof command, "addr2line -f -i %#llx -e",
                static_cast<unsigned long long>(address - module.base));
  Location innermost, chosen, outermost;
  std::string function;  // a line with its name comes before the line with its place
  read_lines(command, module, [&](const std::string& line) {
    const std::size_t colon = line.rfind(':');
    if (colon == std::string::npos) function = line.substr(0, line.find('\n'));
    if (colon == std::string::npos || line[0] == '?') return;
    const Location here{shown_path(line.substr(0, colon)), std::atoi(line.c_str() + colon + 1)};
    if (here.line == 0) return;
    if (innermost.line == 0) innermost = here;
    if (chosen.line == 0 && here.file.ends_with(".cu")) chosen = here;
    outermost = here;
  });
  return {chosen.line != 0 ? chosen : innermost, outermost, function};
}

void read_lines_of_shell(const std::string& command, const std::string& file,
                         const std::function<void(const std::string& line)>& use) {
  std::string path = "'";
  for (const char c : file) path += c == '\'' ? std::string("'\\''") : std::string(1, c);
  std::FILE* const lines = popen((command + " " + path + "' 2>/dev/null").c_str(), "r");
  if (lines == nullptr) return;
  char line[4096];
  while (std::fgets(line, sizeof line, lines) != nullptr) use(line);
  pclose(lines);
}

ReadLines& lines_reader() {
  static ReadLines* const reader = new ReadLines(read_lines_of_shell);
  return *reader;
}

}  // namespace

char* Module::thread_local_memory() const {
  if (thread_local_bytes == 0) return nullptr;
  struct {
    unsigned long module, offset;
  } index{thread_local_id, 0};
  return static_cast<char*>(__tls_get_addr(&index));
}

const Module& module_of(const void* address) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Module>> known;
  const std::scoped_lock lock(mutex);
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  for (const auto& module : known)
    if (value >= module->begin && value < module->end) return *module;
  Search search{value, nullptr};
  dl_iterate_phdr(look_at, &search);
  if (!search.found) throw Error("a kernel's address belongs to no loaded library");
  known.push_back(std::move(search.found));
  return *known.back();
}

void read_lines(const std::string& command, const Module& module,
                const std::function<void(const std::string& line)>& use) {
  lines_reader()(command, module.path, use);
}

void set_read_lines(ReadLines read_lines) { lines_reader() = std::move(read_lines); }

std::string shown_path(const std::string& file) {
  const std::string root = FLASH_REPOSITORY "/";
  return file.starts_with(root) ? file.substr(root.size()) : file;
}

CodePlace look_up(const Module& module, std::uintptr_t address) {
  static std::mutex mutex;
  static std::map<std::uintptr_t, CodePlace> known;  // addr2line is a process each time
  const std::scoped_lock lock(mutex);
  if (const auto found = known.find(address); found != known.end()) return found->second;
  return known[address] = looked_up(module, address);
}

CallsFromKernel calls_from_kernel(const Module& module, const void* top) {
  struct Walk {
    std::uintptr_t top;
    std::vector<std::uintptr_t> calls = {};
  } walk{reinterpret_cast<std::uintptr_t>(top)};
  const auto take = [](_Unwind_Context* frame, void* data) {
    auto& [end, calls] = *static_cast<Walk*>(data);
    if (_Unwind_GetCFA(frame) >= end || _Unwind_GetIP(frame) == 0) return _URC_NORMAL_STOP;
    calls.push_back(_Unwind_GetIP(frame) - 1);
    return _URC_NO_REASON;
  };
  _Unwind_Backtrace(take, &walk);
  CallsFromKernel found;
  for (const std::uintptr_t call : walk.calls) {
    if (call < module.begin || call >= module.end) continue;
    const auto [inner, outer, function] = look_up(module, call);
    if (!inner.file.ends_with(".cu")) continue;
    if (found.innermost.line == 0) found.innermost = inner;
    found.outermost = outer.file.ends_with(".cu") ? outer : inner;
  }
  return found;
}

bool CodePlace::is_in(const std::string& name) const {
  if (function == name || function.starts_with(name + "<")) return true;
  return !function.starts_with("_ZZ") &&  // what is local to a function
         function.find(std::to_string(name.size()) + name) != std::string::npos;
}

// ---- names and sizes of variables
// ----------------------------------------------------------------

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

}  // namespace flash::simt
