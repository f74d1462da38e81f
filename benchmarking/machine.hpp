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
  std::size_t (*in_use)() = [] { return std::size_t{0}; };
  std::size_t (*peak)() = [] { return std::size_t{0}; };
  void (*reset_peak)() = [] {};
  void (*set_limit)(std::optional<std::size_t> bytes) = [](std::optional<std::size_t>) {};
  void (*release_cached)() = [] {};  // gives back what the allocator keeps for later
  void (*release_kept)() = [] {};    // and what part 2's ladder keeps from call to call
};

// By default one whose memory and caches are somebody else's matter.
class Machine {
 public:
  virtual ~Machine() = default;

  virtual std::string name() const { return ""; }  // the GPU's or the processor's
  virtual Clock& clock() = 0;

  // Overwrites a buffer, so that the next pass finds its inputs in memory. May be asynchronous.
  virtual void evict_caches() {}
  virtual std::string eviction() const { return ""; }  // what evict_caches() does, for people
  // How fast the processor is at this moment, on as many threads as part 2's ladder uses; 0 where
  // that does not matter.
  virtual double peak_gflops(DType) { return 0; }

  const bool is_gpu = false;
  const MeteredMemory memory = {};

 protected:
  Machine() = default;
  Machine(bool gpu, const MeteredMemory& metered) : is_gpu(gpu), memory(metered) {}
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

// How many bytes of host memory this process can still take before the system has none left, or its
// container's limit is met; nothing where the system does not say.
std::optional<std::size_t> available_host_memory();

bool has_gpu() noexcept;  // and the build has CUDA

// `device` is "cuda", where there is a GPU, or "cpu".
std::unique_ptr<Machine> make_machine(const std::string& device);

}  // namespace flash
