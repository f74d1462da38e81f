// Names and sizes of variables: for messages, and for what shared memory a launch may have.
#pragma once

#include <cstddef>
#include <string>

#include "common/simt/module.hpp"

namespace flash::simt {

struct Symbol {
  std::string name;         // "tile"; empty: unknown
  std::size_t offset = 0;   // where it begins among the module's thread_local variables
};

// The thread_local variable, that is, the __shared__ one, that lies `offset` bytes into the module's. Runs readelf.
Symbol thread_local_symbol(const Module& module, std::size_t offset);

// The bytes of the __shared__ variables that stand in `kernel`; what functions that it calls have of their own is not seen. Runs
// readelf, once a module.
std::size_t static_shared_bytes(const Module& module, const void* kernel);

// threadIdx and its kin.
bool is_builtin_variable(const void* address);

}  // namespace flash::simt
