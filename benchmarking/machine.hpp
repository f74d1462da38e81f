// What a benchmark runs on, a GPU or the CPU: its clock, its caches, its memory.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "common/clock.hpp"
#include "common/registry.hpp"

namespace flash {

class Machine {
 public:
  virtual ~Machine() = default;

  virtual std::string device() const = 0;       // the CSV's column: "cuda" or "cpu"
  virtual std::string gpu() const = 0;          // the CSV's column: the GPU's name; empty on a CPU
  virtual std::string description() const = 0;  // the name of the GPU or of the processor

  virtual Clock& clock() = 0;

  // Overwrites a buffer, so that the next pass finds its inputs in memory. May be asynchronous.
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

// While it lives, the machine's memory is capped at baseline + limit; without a limit it does
// nothing.
class MemoryCap {
 public:
  MemoryCap(Machine& machine, std::size_t baseline_bytes, std::optional<std::size_t> limit)
      : machine_(machine) {
    if (limit) machine_.set_memory_limit(baseline_bytes + *limit);
  }
  ~MemoryCap() { machine_.set_memory_limit(std::nullopt); }
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

// The processor's peak, and what programs with part 2's ladder ask of it (host_ladder.cpp).
struct HostLadder {
  std::string peak;  // how the peak is measured, for people; empty: there is none
  double (*peak_gflops)(DType) = nullptr;  // measures for 2 ms
  void (*release)() = nullptr;             // of the memory that it keeps from call to call
};
HostLadder host_ladder();

// How many bytes of host memory this process can still take before the system has none left, or its
// container's limit is met; nothing where the system does not say.
std::optional<std::size_t> available_host_memory();

bool has_gpu() noexcept;  // and the build has CUDA

// `device` is "cuda", where there is a GPU, or "cpu".
std::unique_ptr<Machine> make_machine(const std::string& device);

}  // namespace flash
