// What a benchmark runs on, a GPU or the CPU: its clock, its caches, its memory.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "common/clock.hpp"
#include "common/registry.hpp"

namespace flash {

// Of the memory that the work allocates in, the GPU's or the host's, in bytes.
struct MeteredMemory {
  std::size_t (*in_use)();
  std::size_t (*peak)();
  void (*reset_peak)();
  void (*set_limit)(std::optional<std::size_t> bytes);
  void (*release_cached)();  // gives back what the allocator keeps for later
};

class Machine {
 public:
  virtual ~Machine() = default;

  virtual std::string name() const = 0;  // the GPU's or the processor's
  virtual Clock& clock() = 0;

  // Overwrites a buffer, so that the next pass finds its inputs in memory. May be asynchronous.
  virtual void evict_caches() = 0;
  virtual std::string eviction() const = 0;  // what evict_caches() does, for people

  const MeteredMemory memory;

 protected:
  explicit Machine(const MeteredMemory& metered) : memory(metered) {}
};

// While it lives, the machine's memory is capped at baseline + limit; without a limit it does
// nothing.
class MemoryCap {
 public:
  MemoryCap(Machine& machine, std::size_t baseline_bytes, std::optional<std::size_t> limit)
      : machine_(machine) {
    if (limit) machine_.memory.set_limit(baseline_bytes + *limit);
  }
  ~MemoryCap() { machine_.memory.set_limit(std::nullopt); }
  MemoryCap(const MemoryCap&) = delete;
  MemoryCap& operator=(const MemoryCap&) = delete;

 private:
  Machine& machine_;
};

// What other programs and other virtual machines took of the processors since it was made, from 0
// to 1; nothing where the system does not say.
class OtherPrograms {
 public:
  OtherPrograms() : start_(now()) {}
  std::optional<double> share() const;

 private:
  struct Seconds {
    double busy = 0, all = 0, own = 0;
  };
  static Seconds now();
  Seconds start_;
};

// Gives back what part 2's ladder keeps from call to call, where the program is linked with it.
void release_ladder_memory();

// How many bytes of host memory this process can still take before the system has none left, or its
// container's limit is met; nothing where the system does not say.
std::optional<std::size_t> available_host_memory();

bool has_gpu() noexcept;  // and the build has CUDA

// `device` is "cuda", where there is a GPU, or "cpu".
std::unique_ptr<Machine> make_machine(const std::string& device);

}  // namespace flash
