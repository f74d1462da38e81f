// What an address in a kernel belongs to, in words too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "emulator/run/shadow.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

struct AsyncStep;

enum class AccessKind { kRead, kWrite, kAtomic };
const char* verb(AccessKind kind);  // " reads "

struct Place {
  Shadow* shadow = nullptr;
  char* begin = nullptr;
  std::size_t bytes = 0;
  bool is_global = false;
};

// An access: of the running thread, or of an agent in `step`.
struct Touch {
  const char* address;
  std::size_t bytes;
  AccessKind kind;
  std::uintptr_t pc;
  const AsyncStep* step = nullptr;
  Place place{};

  std::size_t offset() const { return static_cast<std::size_t>(address - place.begin); }
};

class Places {
 public:
  // For the blocks that `worker` runs, in this shared memory.
  Places(const Worker& worker, SharedMemory& shared) : worker_(worker), shared_(shared) {}

  SharedMemory& shared() const { return shared_; }

  // Before the launch's first access.
  void start_launch(const Module& module);

  // Sets touch.place; false where not all of its bytes are in one.
  bool find(Touch& touch) const;

  // "4 bytes of device memory, argument 1 of the kernel, from byte 8 (element 2 of that size)"
  std::string text(const Touch& touch) const;

  // What is wrong with an access that find() does not find, or that is forbidden. Nothing: it may
  // be, because other memory than shared and device memory is accessed lawfully.
  struct Trespass {
    FindingKind kind;
    std::string text;  // behind the verb
  };
  std::optional<Trespass> trespass(const Touch& touch) const;

 private:
  Trespass beside_allocation(const Touch& touch) const;
  bool is_argument(const char* address) const;

  const Worker& worker_;
  SharedMemory& shared_;
  // The variables of a kernel's library, the __device__ ones among them. They keep their values.
  std::map<const Module*, Shadow> of_modules_;
  Place variables_{};  // of the launch's module
};

std::string bytes_text(std::size_t bytes);  // "1 byte", "2 bytes"

}  // namespace flash::simt
