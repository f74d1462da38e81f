// Implements device.hpp, check.hpp and launch.hpp on the CUDA runtime.
#include "common/cuda/device.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "common/cuda/check.hpp"
#include "common/cuda/launch.hpp"

namespace flash::device {
namespace {

// What allocate() has handed out. One per process: this file is in a shared library.
struct Meter {
  std::mutex mutex;
  std::unordered_map<void*, std::size_t> sizes;
  std::size_t in_use = 0;
  std::size_t peak = 0;
  std::optional<std::size_t> limit;
  bool poison = false;
  std::optional<std::size_t> shared_limit;
};

Meter& meter() {
  static Meter instance;
  return instance;
}

int current_device() {
  int device = 0;
  FLASH_CUDA_CHECK(cudaGetDevice(&device));
  return device;
}

// Asks CUDA once for each device: a call of an attention kernel needs ten attributes.
int attribute(cudaDeviceAttr which) {
  constexpr int kDevices = 16, kAttributes = 128;
  static std::atomic<int> known[kDevices][kAttributes];  // plus 1
  const int device = current_device();
  const bool has_place = device < kDevices && which < kAttributes;
  if (has_place)
    if (const int value = known[device][which].load(std::memory_order_relaxed)) return value - 1;
  int value = 0;
  FLASH_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device));
  if (has_place) known[device][which].store(value + 1, std::memory_order_relaxed);
  return value;
}

// The pool that allocate() draws from, told once to keep freed memory: without that it goes back to
// the driver at every synchronisation, and the next allocation pays for it.
cudaMemPool_t memory_pool() {
  cudaMemPool_t pool = nullptr;
  FLASH_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool, current_device()));
  static const bool keeps_memory = [&] {
    std::uint64_t threshold = ~std::uint64_t{0};
    FLASH_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    return true;
  }();
  (void)keeps_memory;
  return pool;
}

// What to do about an error, where CUDA's words do not say it.
std::string way_out(cudaError_t error) {
#ifndef FLASH_SIMT
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
    return "; this build has kernels for the architecture " FLASH_CUDA_ARCHITECTURES
           " only: configure it anew with -DCMAKE_CUDA_ARCHITECTURES=native";
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver)
    return "; ./lab doctor says what this machine lacks, and the emulated programs need no GPU";
#else
  (void)error;
#endif
  return "";
}

}  // namespace

void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line) {
  (void)cudaGetLastError();
  const std::string message = std::string(call) + " at " + file + ":" + std::to_string(line) +
                              ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) +
                              ")" + way_out(error);
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(message);
  throw CudaError(message);
}

int count() noexcept {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return devices;
}

bool is_emulated() noexcept {
#ifdef FLASH_SIMT
  return true;
#else
  return false;
#endif
}

std::string name() {
  cudaDeviceProp properties{};
  FLASH_CUDA_CHECK(cudaGetDeviceProperties(&properties, current_device()));
  return properties.name;
}

int compute_capability() {
  return 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
         attribute(cudaDevAttrComputeCapabilityMinor);
}

void synchronize() { FLASH_CUDA_CHECK(cudaDeviceSynchronize()); }

void* allocate(std::size_t bytes, Stream stream) {
  if (bytes == 0) return nullptr;
  Meter& m = meter();
  const std::scoped_lock lock(m.mutex);
  if (m.limit && (bytes > *m.limit || m.in_use > *m.limit - bytes))
    throw OutOfMemory("the device memory limit is " + std::to_string(*m.limit) + " bytes; " +
                      std::to_string(m.in_use) + " are in use and " + std::to_string(bytes) +
                      " more do not fit");
  void* memory = nullptr;
  FLASH_CUDA_CHECK(cudaMallocFromPoolAsync(&memory, bytes, memory_pool(), native(stream)));
  m.sizes[memory] = bytes;
  m.in_use += bytes;
  m.peak = std::max(m.peak, m.in_use);
  if (m.poison) FLASH_CUDA_CHECK(cudaMemsetAsync(memory, 0xff, bytes, native(stream)));
  return memory;
}

void set_poison(bool on) {
  const std::scoped_lock lock(meter().mutex);
  meter().poison = on;
}

void free(void* memory, Stream stream) noexcept {
  if (memory == nullptr) return;
  Meter& m = meter();
  const std::scoped_lock lock(m.mutex);
  if (const auto entry = m.sizes.find(memory); entry != m.sizes.end()) {
    m.in_use -= entry->second;
    m.sizes.erase(entry);
  }
  // After a kernel has crashed, freeing fails as well; the crash was reported where it was noticed.
  if (cudaFreeAsync(memory, native(stream)) != cudaSuccess) (void)cudaGetLastError();
}

void set_memory_limit(std::optional<std::size_t> bytes) {
  const std::scoped_lock lock(meter().mutex);
  meter().limit = bytes;
}

std::size_t memory_in_use() {
  const std::scoped_lock lock(meter().mutex);
  return meter().in_use;
}

std::size_t peak_memory() {
  const std::scoped_lock lock(meter().mutex);
  return meter().peak;
}

void reset_peak_memory() {
  const std::scoped_lock lock(meter().mutex);
  meter().peak = meter().in_use;
}

void release_cached_memory() {
  synchronize();
  FLASH_CUDA_CHECK(cudaMemPoolTrimTo(memory_pool(), 0));
}

MemoryInfo memory_info() {
  MemoryInfo info;
  FLASH_CUDA_CHECK(cudaMemGetInfo(&info.free_bytes, &info.total_bytes));
  return info;
}

int multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount); }

std::size_t l2_cache_bytes() { return static_cast<std::size_t>(attribute(cudaDevAttrL2CacheSize)); }

std::size_t shared_memory_per_block() {
  const auto bytes = static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  const std::scoped_lock lock(meter().mutex);
  return std::min(bytes, meter().shared_limit.value_or(bytes));
}

void set_shared_memory_limit(std::optional<std::size_t> bytes) {
  const std::scoped_lock lock(meter().mutex);
  meter().shared_limit = bytes;
}

void copy_to_device(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) FLASH_CUDA_CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
}

void copy_to_host(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) FLASH_CUDA_CHECK(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost));
}

std::optional<Traffic> traffic([[maybe_unused]] const void* memory) {
#ifdef FLASH_SIMT
  if (simt::checking()) return simt::traffic(memory);
#endif
  return std::nullopt;
}

std::optional<SharedAccesses> shared_accesses() {
#ifdef FLASH_SIMT
  if (simt::checking()) return simt::shared_accesses();
#endif
  return std::nullopt;
}

std::optional<Work> work() {
#ifdef FLASH_SIMT
  if (simt::checking()) return simt::work();
#endif
  return std::nullopt;
}

void reset_traffic([[maybe_unused]] bool counts_warps) {
#ifdef FLASH_SIMT
  simt::reset_counters(counts_warps);
#endif
}

std::optional<HostCalls> host_calls([[maybe_unused]] Stream stream) {
#ifdef FLASH_SIMT
  simt::HostCalls calls = simt::host_calls(stream.handle);
  return HostCalls{std::move(calls.elsewhere),
                   std::move(calls.waits),
                   calls.peak_bytes,
                   calls.kept_bytes,
                   calls.blocks,
                   calls.threads,
                   std::move(calls.local_memory)};
#endif
  return std::nullopt;
}

void reset_host_calls() {
#ifdef FLASH_SIMT
  simt::reset_host_calls();
#endif
}

void forbid([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef FLASH_SIMT
  if (bytes > 0) simt::forbid(memory, bytes);
#endif
}

void copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes > 0)
    FLASH_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, native(stream)));
}

void fill_bytes(void* device, unsigned char value, std::size_t bytes, Stream stream) {
  if (bytes > 0) FLASH_CUDA_CHECK(cudaMemsetAsync(device, value, bytes, native(stream)));
}

IndependentStream::IndependentStream() {
  cudaStream_t stream = nullptr;
  FLASH_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_.handle = stream;
}

IndependentStream::~IndependentStream() {
  cudaStreamDestroy(
      native(stream_));  // of what was enqueued, an error is reported by the next call
}

Event::Event() {
  cudaEvent_t event = nullptr;
  FLASH_CUDA_CHECK(cudaEventCreate(&event));
  handle_ = event;
}

Event::~Event() {
  if (cudaEventDestroy(static_cast<cudaEvent_t>(handle_)) != cudaSuccess) (void)cudaGetLastError();
}

void Event::record(Stream stream) {
  FLASH_CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(handle_), native(stream)));
}

void Event::synchronize() const {
  FLASH_CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(handle_)));
}

float Event::milliseconds_since(const Event& earlier) const {
  float milliseconds = 0;
  FLASH_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(earlier.handle_),
                                        static_cast<cudaEvent_t>(handle_)));
  return milliseconds;
}

void reserve_shared_memory(const void* kernel, const std::string& name, std::size_t bytes) {
  constexpr std::size_t kWithoutAsking = 48 * 1024;
  if (bytes <= kWithoutAsking) return;
  const std::size_t most = shared_memory_per_block();
  if (bytes > most)
    throw Unsupported(name + " needs " + std::to_string(bytes) +
                      " bytes of shared memory a block; this GPU has at most " +
                      std::to_string(most));
  FLASH_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(bytes)));
}

void check_launch(cudaError_t error, const std::string& name, const LaunchConfig& config) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  const auto text = [](const dim3& d) {
    return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) +
           ")";
  };
  throw CudaError("launch of " + name + ", grid " + text(config.grid) + ", block " +
                  text(config.block) + ", " + std::to_string(config.shared_bytes) +
                  " bytes of dynamic shared memory: " + cudaGetErrorString(error) + " (" +
                  cudaGetErrorName(error) + ")" +
                  (error == cudaErrorInvalidConfiguration
                       ? "; a grid has 1 to 2147483647 blocks in x and 1 to 65535 in y and in z, a "
                         "block 1 to 1024 threads"
                       : ""));
}

}  // namespace flash::device

namespace flash {

dim3 grid_size(Index blocks) {
  constexpr Index kMost = 0x7fffffff;
  if (blocks < 1 || blocks > kMost)
    throw Unsupported("the launch needs " + std::to_string(blocks) + " blocks; a grid holds 1 to " +
                      std::to_string(kMost));
  return dim3(static_cast<unsigned>(blocks));
}

}  // namespace flash
