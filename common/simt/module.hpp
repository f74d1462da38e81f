// The library that a kernel is in: where it lies in memory, its thread_local variables, and its lines of source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/simt/simt.hpp"

namespace flash::simt {

struct Module {
  std::string path;
  std::uintptr_t base = 0;            // what the addresses in its file are added to
  std::uintptr_t begin = 0, end = 0;  // where it is mapped
  std::uintptr_t data_begin = 0, data_end = 0;  // its variables
  std::size_t thread_local_id = 0;
  std::size_t thread_local_bytes = 0;
  bool thread_local_initializer = false;  // some thread_local variable has one: __shared__ must not

  // This OS thread's copy of its thread_local variables.
  char* thread_local_memory() const;
};

// The module that holds `address`; the same object every time. Throws Error when there is none.
const Module& module_of(const void* address);

// Where in the source the instruction at `address` stands: of the functions that were inlined there, the innermost one in a
// .cu file, since a helper in a header is not where a student looks. Runs addr2line; without it, or without line tables, line 0.
Location locate(const Module& module, std::uintptr_t address);

// The shell's way to say `text` literally.
std::string shell_quoted(const std::string& text);

// `file` relative to the repository where it lies in it.
std::string shown_path(const std::string& file);

}  // namespace flash::simt
