// The GPU as host code sees it, with no CUDA type: its properties, memory that is metered and can
// be capped, copies, a clock. Tests and benchmarks include this and need no nvcc. Every function
// throws CudaError when CUDA fails.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/counted.hpp"
#include "common/export.hpp"
#include "common/stream.hpp"

namespace flash::device {

// ---- What there is ------------------------------------------------------------------------------

// The number of usable GPUs; 0 when there is none, or no driver. Never throws.
FLASH_EXPORT int count() noexcept;

// Whether this is the emulator, whose times say nothing about a GPU.
FLASH_EXPORT bool is_emulated() noexcept;

// The current GPU's name, "NVIDIA H200".
FLASH_EXPORT std::string name();

// 75 on Turing, 80 on an A100, 90 on Hopper.
FLASH_EXPORT int compute_capability();

// Waits for everything that was enqueued on the current GPU, and reports an error that happened
// meanwhile.
FLASH_EXPORT void synchronize();

// ---- Memory -------------------------------------------------------------------------------------

// Stream-ordered: allocate() and free() take their turn on `stream`, and freed memory is kept for
// the next allocate(). Throws OutOfMemory when the device, or the limit below, has no room. 0 bytes
// give nullptr.
FLASH_EXPORT void* allocate(std::size_t bytes, Stream stream = {});
FLASH_EXPORT void free(void* memory, Stream stream = {}) noexcept;

// The most bytes that allocate() may have handed out at one time; std::nullopt means no limit but
// the device's.
FLASH_EXPORT void set_memory_limit(std::optional<std::size_t> bytes);

// How many bytes allocate() has handed out: now, and the most since reset_peak_memory().
FLASH_EXPORT std::size_t memory_in_use();
FLASH_EXPORT std::size_t peak_memory();
FLASH_EXPORT void reset_peak_memory();

// Gives the memory that free() kept back to the device.
FLASH_EXPORT void release_cached_memory();

// Whether allocate() fills memory with bytes 0xff, NaN in every floating-point type, so that an
// element that nobody wrote is noticed.
FLASH_EXPORT void set_poison(bool on);

// The device's free and total memory according to the driver, with all other programs.
struct MemoryInfo {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};
FLASH_EXPORT MemoryInfo memory_info();

// How many multiprocessors the current GPU has.
FLASH_EXPORT int multiprocessors();

// Bytes of level-2 cache: what a benchmark overwrites so that no pass starts with its inputs in
// cache.
FLASH_EXPORT std::size_t l2_cache_bytes();

// The most shared memory that one thread block may ask for: 64 KiB on Turing, 163 on an A100, 227
// on Hopper. A limit makes it smaller, so that a large GPU shows what kernels do on a small one;
// std::nullopt removes the limit.
FLASH_EXPORT std::size_t shared_memory_per_block();
FLASH_EXPORT void set_shared_memory_limit(std::optional<std::size_t> bytes);

// ---- Copies -------------------------------------------------------------------------------------

// These wait until the copy is done.
FLASH_EXPORT void copy_to_device(void* device, const void* host, std::size_t bytes);
FLASH_EXPORT void copy_to_host(void* host, const void* device, std::size_t bytes);

// These are enqueued on `stream`. copy() is from device memory to device memory, fill_bytes() sets
// every byte.
FLASH_EXPORT void copy(void* to, const void* from, std::size_t bytes, Stream stream = {});
FLASH_EXPORT void fill_bytes(void* device, unsigned char value, std::size_t bytes,
                             Stream stream = {});

// What kernels did since reset_traffic(); traffic() is that of one allocation. Only the emulator's
// checks count; elsewhere the results are empty.
FLASH_EXPORT std::optional<Traffic> traffic(const void* memory);
FLASH_EXPORT std::optional<SharedAccesses> shared_accesses();
FLASH_EXPORT std::optional<Work> work();
// Counting what warps do takes a quarter more time.
FLASH_EXPORT void reset_traffic(bool counts_warps = true);

// What host code asked of the device since reset_host_calls(). Only the emulator knows.
struct HostCalls {
  std::vector<std::string> elsewhere;   // what was enqueued on another stream than `stream`
  std::vector<std::string> waits;       // calls that wait for the device
  std::size_t peak_bytes = 0;           // of memory beyond what there was, whoever allocated it
  std::size_t kept_bytes = 0;           // of it, what is still there
  std::size_t blocks = 0, threads = 0;  // of all launches; of the largest of their blocks
  std::string local_memory = "";        // what is wrong with that of a thread, in checked launches
};
FLASH_EXPORT std::optional<HostCalls> host_calls(Stream stream = {});
FLASH_EXPORT void reset_host_calls();

// Tells a checker that kernels must not touch `bytes` from `memory` on, inside of an allocation:
// what lies around a tensor. The emulator's checks report such an access; a GPU ignores this.
FLASH_EXPORT void forbid(const void* memory, std::size_t bytes);

// A stream of its own: it and the default stream do not wait for each other. It is destroyed when
// the work that was enqueued on it is done.
class FLASH_EXPORT IndependentStream {
 public:
  IndependentStream();
  ~IndependentStream();
  IndependentStream(const IndependentStream&) = delete;
  IndependentStream& operator=(const IndependentStream&) = delete;

  Stream get() const { return stream_; }

 private:
  Stream stream_;
};

// ---- Time ---------------------------------------------------------------------------------------

// A moment on a stream (a CUDA event).
class FLASH_EXPORT Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream stream = {});
  void synchronize() const;

  // From `earlier` to this event, both recorded and done, in milliseconds. Resolution about half a
  // microsecond.
  float milliseconds_since(const Event& earlier) const;

 private:
  void* handle_ = nullptr;
};

}  // namespace flash::device
