// The library of a kernel: its place in memory, its thread_local variables, and its source lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace flash::simt {

struct Location {
  std::string file;  // relative to the repository where it lies in it
  int line = 0;      // 0: unknown

  bool operator==(const Location&) const = default;
};

struct Module {
  std::string path;
  std::uintptr_t base = 0;                      // what the addresses in its file are added to
  std::uintptr_t begin = 0, end = 0;            // where it is mapped
  std::uintptr_t data_begin = 0, data_end = 0;  // of that, what can be written: its variables
  std::size_t thread_local_id = 0;
  std::size_t thread_local_bytes = 0;
  std::size_t thread_local_alignment = 1;
  bool thread_local_initializer = false;  // some thread_local variable has one: __shared__ must not
  mutable bool is_checked = false;        // its code tells of each access to memory

  // This OS thread's copy of its thread_local variables.
  char* thread_local_memory() const;
};

// The module that holds `address`; the same object every time. Throws Error when there is none.
const Module& module_of(const void* address);

// Where in the code a function was called that returns to `address`.
inline std::uintptr_t call_before(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) - 1;
}
// Where the running function was called.
#define FLASH_HERE flash::simt::call_before(__builtin_return_address(0))

// The source lines of an instruction.
struct CodePlace {
  // In the innermost function of a .cu file that was inlined there: a student does not look into
  // headers.
  Location place;
  Location outermost;    // in the function that others were inlined into
  std::string function;  // that one: "kernel", "kernel<16>" or mangled

  // Whether that function is called `name`, without namespaces; no lambda in it.
  bool is_in(const std::string& name) const;
};
// Where nothing is known of the address, the lines are 0.
CodePlace look_up(const Module& module, std::uintptr_t address);
inline Location locate(const Module& module, std::uintptr_t address) {
  return look_up(module, address).place;
}

// The innermost and the outermost of the calls that led here, among the lines of the module's .cu
// files, on a stack that begins at `top`. Line 0: there is none.
struct CallsFromKernel {
  Location innermost, outermost;
};
CallsFromKernel calls_from_kernel(const Module& module, const void* top);

// `file` relative to the repository where it lies in it.
std::string shown_path(const std::string& file);

struct Symbol {
  std::string name;        // "tile"; empty: unknown
  std::size_t offset = 0;  // where it begins: among the module's thread_local variables, or from
                           // its base
};

// The variable (a __device__ one, for example) at `address`.
Symbol variable_symbol(const Module& module, std::uintptr_t address);
// The bytes, by offset among the module's thread_local variables, in which the compiler notes that
// a variable's constructor has run.
std::vector<std::pair<std::size_t, std::size_t>> constructor_guards(const Module& module);

// The thread_local variable (a __shared__ one) at `offset` in the module's thread-local memory.
Symbol thread_local_symbol(const Module& module, std::size_t offset);

// The mangled name of the function of the module that begins at `address`; "" where none does.
std::string function_at(const Module& module, std::uintptr_t address);
// Whether one does that is not of the emulator's headers. The accesses of those nobody checks:
// assembly.py leaves them as they are.
inline bool is_function_of_file(const Module& module, std::uintptr_t address) {
  const std::string name = function_at(module, address);
  const std::size_t at = name.find_first_not_of("ZNKL", 2);
  return at != name.npos && name.compare(at, 11, "5flash4simt") != 0 &&
         name.compare(at, 25, "6nvcuda4wmma11simt_detail") != 0;
}

// The bytes of the __shared__ variables in `kernel`, without those in functions that it calls.
std::size_t static_shared_bytes(const Module& module, const void* kernel);

}  // namespace flash::simt
