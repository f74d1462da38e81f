#include "benchmarking/machine.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <vector>

#include "benchmarking/processor.hpp"
#include "benchmarking/program.hpp"
#include "common/cpu/threads.hpp"
#include "common/memory_meter.hpp"
#if FLASH_HAVE_CUDA
#include "common/cuda/evict.hpp"
#endif

namespace flash {

// Of part 2's ladder, where the program is linked with it; else null.
[[gnu::weak]] FLASH_EXPORT void release_kept_memory();

namespace {

class SteadyClock final : public Clock {
 public:
  void synchronize() override {}  // work on the CPU is done when it returns
  double now_ms() override {
    return std::chrono::duration<double, std::milli>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// 0 where the system does not say.
std::size_t last_level_cache_bytes() {
  long bytes = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
  bytes = std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE));
#endif
  return static_cast<std::size_t>(std::max(bytes, 0L));
}

std::string processor_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "CPU";
}

class CpuMachine final : public Machine {
 public:
  CpuMachine()
      : Machine(false, {host_memory::in_use, host_memory::peak, host_memory::reset_peak,
                        host_memory::set_limit, [] {},
                        [] {
                          if (release_kept_memory != nullptr) release_kept_memory();
                        }}) {}

  std::string name() const override { return processor_name(); }
  Clock& clock() override { return clock_; }

  void evict_caches() override {
    std::memset(eviction_.data(), ++fill_, eviction_.size());
    // Nobody reads the buffer: without this the compiler may remove the memset.
    asm volatile("" : : "r"(eviction_.data()) : "memory");
  }
  std::string eviction() const override {
    std::string text = format("%zu MiB overwritten before each pass", eviction_.size() >> 20);
    if (cache_bytes_ > eviction_.size() / 2)
      text +=
          format(", less than twice the last-level cache of %zu MiB: small inputs may stay in it",
                 cache_bytes_ >> 20);
    return text;
  }
  double peak_gflops(DType dtype) override { return native_peak_gflops(dtype, host_threads(), 2); }

 private:
  // Twice the last-level cache, as on a GPU, but not above 32 MiB: a server's 500 MiB would cost
  // more than the passes, which do 2 * d3 FLOP for each score that they read.
  static constexpr std::size_t kMostEvictedBytes = std::size_t{32} << 20;

  std::size_t cache_bytes_ = last_level_cache_bytes();
  std::vector<char> eviction_ = std::vector<char>(
      cache_bytes_ == 0 ? kMostEvictedBytes : std::min(2 * cache_bytes_, kMostEvictedBytes));
  unsigned char fill_ = 0;
  SteadyClock clock_;
};

#if FLASH_HAVE_CUDA

// Stands still from each reading until the GPU has done `delay`, so that the host can enqueue a
// pass in the meantime: what is measured is the GPU's time, and not the host's for a launch. The
// end is recorded before the host waits for it. Recorded afterwards, when the host had woken up, an
// empty pass took 7 us on an H100, in place of 3.
class EventClock final : public Clock {
 public:
  explicit EventClock(std::function<void()> delay) : delay_(std::move(delay)) { start_.record(); }

  void synchronize() override {
    now_.record();
    device::synchronize();
  }

  // Sums up the steps from reading to reading: one float of milliseconds since the start would have
  // a resolution of 4 us after a minute, and of 31 us after five.
  double now_ms() override {
    total_ms_ += now_.milliseconds_since(start_);
    delay_();
    start_.record();
    return total_ms_;
  }

 private:
  std::function<void()> delay_;
  device::Event start_, now_;
  double total_ms_ = 0;
};

class GpuMachine final : public Machine {
 public:
  GpuMachine()
      : Machine(true, {device::memory_in_use, device::peak_memory, device::reset_peak_memory,
                       device::set_memory_limit, device::release_cached_memory}) {}

  std::string name() const override { return device::name(); }
  Clock& clock() override { return clock_; }

  void evict_caches() override { evict_l2_(); }
  std::string eviction() const override {
    return format("%zu MiB, twice the L2 cache, overwritten before each pass",
                  evict_l2_.bytes() >> 20);
  }

 private:
  L2Eviction evict_l2_;
  // Longer than the host needs to enqueue a pass: without it cuDNN's causal forward pass of 16
  // heads of 128 and 1024 keys, batch 16, took 0.19 ms on an H200, with it 0.16 ms.
  EventClock clock_{[this] {
    for (int i = 0; i < 4; ++i) evict_caches();
  }};
};

#endif

}  // namespace

std::optional<std::size_t> available_host_memory() {
  std::optional<std::size_t> available;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string word; meminfo >> word;)
    if (std::size_t kib = 0; word == "MemAvailable:" && meminfo >> kib) available = kib * 1024;
  // A container's share, cgroup v2 and v1, where there is a limit and not the word "max"; used
  // pages include file caches, so that this errs towards less.
  for (const auto& [limit_file, used_file] :
       {std::pair{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
         "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}) {
    std::size_t limit = 0, used = 0;
    if (!(std::ifstream(limit_file) >> limit) || !(std::ifstream(used_file) >> used)) continue;
    const std::size_t rest = limit - std::min(limit, used);
    available = std::min(available.value_or(rest), rest);
  }
  return available;
}

bool has_gpu() noexcept {
#if FLASH_HAVE_CUDA
  return device::count() > 0;
#else
  return false;
#endif
}

std::unique_ptr<Machine> make_machine([[maybe_unused]] const std::string& device) {
#if FLASH_HAVE_CUDA
  if (device == "cuda") return std::make_unique<GpuMachine>();
#endif
  return std::make_unique<CpuMachine>();
}

}  // namespace flash
