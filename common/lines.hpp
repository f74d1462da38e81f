// From an address in a library or program to the lines of its source code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/export.hpp"

namespace flash {

struct SourceLine {
  std::string function;  // "kernel", "kernel<16>" or mangled
  std::string file;      // the compiler's path of it
  int line = 0;
};

// The lines of the instruction at `offset` in a file, which need not be loaded: the innermost of
// the functions inlined there first. Empty: unknown. An offset is an address in the process minus
// the address where the file is loaded (dlpi_addr); behind a call it is the return address - 1.
//
// The first call for a file opens it and reads its tables (1 to 10 ms); later calls open nothing,
// so a process that may open no file asks once before.
FLASH_EXPORT std::vector<SourceLine> source_lines(const std::string& path, std::uintptr_t offset);

}  // namespace flash
