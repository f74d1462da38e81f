// Implements module.hpp on the dynamic linker's list of loaded libraries and on their files.
#include "emulator/run/module.hpp"

#include <cxxabi.h>
#include <link.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/error.hpp"
#include "common/lines.hpp"
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
      if ((segment.p_flags & PF_W) != 0) {
        module->data_begin = begin;
        module->data_end = begin + segment.p_memsz;
      }
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

std::string shown_path(const std::string& file) {
  const std::string root = FLASH_REPOSITORY "/";
  return file.starts_with(root) ? file.substr(root.size()) : file;
}

CodePlace look_up(const Module& module, std::uintptr_t address) {
  Location innermost, chosen, outermost;
  std::string function;
  for (const SourceLine& each : source_lines(module.path, address - module.base)) {
    const Location here{shown_path(each.file), each.line};
    if (innermost.line == 0) innermost = here;
    if (chosen.line == 0 && here.file.ends_with(".cu")) chosen = here;
    outermost = here;
    function = each.function;
  }
  return {chosen.line != 0 ? chosen : innermost, outermost, function};
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

// ---- names and sizes of variables ---------------------------------------------------------------

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
  std::vector<Variable> thread_locals, variables;
  std::map<std::uintptr_t, std::string> functions;  // by offset in the file, mangled
};

template <class T>
std::vector<T> read(std::ifstream& file, std::size_t at, std::size_t bytes) {
  std::vector<T> values(bytes / sizeof(T));
  file.seekg(static_cast<std::streamoff>(at));
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(bytes));
  if (!file) values.clear();
  return values;
}

// An ELF file's symbol table, which a library that runs has not in memory. Nothing: it has none.
Symbols read_symbols(const std::string& path) {
  Symbols found;
  std::ifstream file(path, std::ios::binary);
  for (const auto& header : read<ElfW(Ehdr)>(file, 0, sizeof(ElfW(Ehdr)))) {
    const auto sections =
        read<ElfW(Shdr)>(file, header.e_shoff, header.e_shnum * sizeof(ElfW(Shdr)));
    for (const auto& section : sections) {
      if (section.sh_type != SHT_SYMTAB) continue;
      const auto& strings = sections.at(section.sh_link);
      const auto names = read<char>(file, strings.sh_offset, strings.sh_size);
      for (const auto& symbol : read<ElfW(Sym)>(file, section.sh_offset, section.sh_size)) {
        if (symbol.st_shndx == SHN_UNDEF) continue;
        const char* const name = &names.at(symbol.st_name);
        const auto type = ELF64_ST_TYPE(symbol.st_info);  // the same in ELF32
        if (type == STT_TLS) found.thread_locals.push_back({name, symbol.st_value, symbol.st_size});
        if (type == STT_OBJECT) found.variables.push_back({name, symbol.st_value, symbol.st_size});
        if (type == STT_FUNC) found.functions[symbol.st_value] = name;
      }
    }
  }
  return found;
}

const Symbols& symbols_in(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, Symbols> known;
  const std::scoped_lock lock(mutex);
  const auto [found, is_new] = known.try_emplace(path);
  if (is_new) found->second = read_symbols(path);
  return found->second;
}

}  // namespace

static Symbol symbol_at(const std::vector<Variable>& variables, std::size_t offset) {
  for (const Variable& variable : variables)
    if (offset >= variable.begin && offset < variable.begin + variable.bytes)
      return {last_name(variable.mangled), variable.begin};
  return {};
}

Symbol thread_local_symbol(const Module& module, std::size_t offset) {
  return symbol_at(symbols_in(module.path).thread_locals, offset);
}

Symbol variable_symbol(const Module& module, std::uintptr_t address) {
  return symbol_at(symbols_in(module.path).variables, address - module.base);
}

std::vector<std::pair<std::size_t, std::size_t>> constructor_guards(const Module& module) {
  std::vector<std::pair<std::size_t, std::size_t>> guards;
  for (const Variable& variable : symbols_in(module.path).thread_locals)
    if (variable.mangled.starts_with("_ZGV") || variable.mangled == "__tls_guard")
      guards.push_back({variable.begin, variable.bytes});
  return guards;
}

std::string function_at(const Module& module, std::uintptr_t address) {
  const auto& functions = symbols_in(module.path).functions;
  const auto found = functions.find(address - module.base);
  return found == functions.end() ? "" : found->second;
}

std::size_t static_shared_bytes(const Module& module, const void* kernel) {
  const Symbols& symbols = symbols_in(module.path);
  const std::string name = function_at(module, reinterpret_cast<std::uintptr_t>(kernel));
  if (name.empty()) return 0;
  // Itanium ABI: Z function E name; a function of extern "C" as its length and name.
  const std::string prefix =
      "_ZZ" + (name.starts_with("_Z") ? name.substr(2) : std::to_string(name.size()) + name) + "E";
  std::size_t bytes = 0;
  for (const Variable& variable : symbols.thread_locals)
    if (variable.mangled.starts_with(prefix)) bytes += variable.bytes;
  return bytes;
}

void prepare(const std::string& library) {
  symbols_in(library);
  source_lines(library, 0);
}

}  // namespace flash::simt
