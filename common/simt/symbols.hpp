// Names and sizes of variables, for messages and for the limit of a launch's shared memory.
#pragma once

#include <cstddef>
#include <string>

#include "common/simt/module.hpp"

namespace flash::simt {

struct Symbol {
  std::string name;        // "tile"; empty: unknown
  std::size_t offset = 0;  // where it begins among the module's thread_local variables
};

// The thread_local variable (a __shared__ one) at `offset` in the module's thread-local memory.
// Runs readelf.
Symbol thread_local_symbol(const Module& module, std::size_t offset);

// The bytes of the __shared__ variables in `kernel`, without those in functions that it calls. Runs
// readelf, once a module.
std::size_t static_shared_bytes(const Module& module, const void* kernel);

// threadIdx and its kin.
bool is_builtin_variable(const void* address);

}  // namespace flash::simt
