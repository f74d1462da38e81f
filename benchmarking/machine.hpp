// What a benchmark runs on, a GPU or the CPU, behind one face: its clock, its caches, its memory.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "common/clock.hpp"

namespace flash {

class Machine {
 public:
  virtual ~Machine() = default;

  virtual std::string device() const = 0;       // the CSV's column: "cuda" or "cpu"
  virtual std::string gpu() const = 0;          // the CSV's column: the GPU's name; empty on a CPU
  virtual std::string description() const = 0;  // for people: the name of the GPU or of the processor

  virtual Clock& clock() = 0;

  // Overwrites a buffer, so that the next pass finds its inputs in memory and not in cache. May be asynchronous.
  virtual void evict_caches() = 0;
  virtual std::string eviction() const = 0;  // what evict_caches() does, for people

  // Bytes of the memory that the work allocates in: the GPU's, or the host's.
  virtual std::size_t memory_in_use() = 0;
  virtual std::size_t peak_memory() = 0;
  virtual void reset_peak_memory() = 0;
  virtual void set_memory_limit(std::optional<std::size_t> bytes) = 0;

  // Gives back what an allocator keeps for later.
  virtual void release_cached_memory() = 0;
};

// While it lives, the machine's memory is capped at baseline + limit; without a limit it does nothing.
class MemoryCap {
 public:
  MemoryCap(Machine& machine, std::size_t baseline_bytes, std::optional<std::size_t> limit) : machine_(machine) {
    if (limit) machine_.set_memory_limit(baseline_bytes + *limit);
  }
  ~MemoryCap() { machine_.set_memory_limit(std::nullopt); }
  MemoryCap(const MemoryCap&) = delete;
  MemoryCap& operator=(const MemoryCap&) = delete;

 private:
  Machine& machine_;
};

// How many bytes of host memory this process can still take before the system has none left, or its container's limit is met;
// nothing where the system does not say.
std::optional<std::size_t> available_host_memory();

// Whether make_machine("cuda") can work: the build has CUDA, and there is a GPU. Never throws.
bool has_gpu() noexcept;

// `device` is "cuda" or "cpu". Throws CudaError.
std::unique_ptr<Machine> make_machine(const std::string& device);

}  // namespace flash
