// Implements cuda_runtime_api.h: the emulated device is a GPU of compute capability 9.0 with an
// H100's limits and 8 GiB of memory. All work is done before a call returns, so that streams are in
// order and events are always complete.
#include "emulator/run/runtime.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/headers/cuda_runtime_api.h"
#include "emulator/run/device_memory.hpp"
#include "emulator/run/elsewhere.hpp"
#include "emulator/run/faults.hpp"
#include "emulator/run/launch.hpp"
#include "emulator/run/module.hpp"
#include "emulator/run/observers.hpp"
#include "emulator/run/shared_memory.hpp"
#include "emulator/run/simt.hpp"

struct CUstream_st {
  unsigned flags;
};
struct CUevent_st {
  bool recorded = false;
  std::chrono::steady_clock::time_point time{};
};

namespace flash::simt {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct FunctionLimits {
  std::mutex mutex;
  std::unordered_map<const void*, std::size_t> dynamic_shared;
};
FunctionLimits& function_limits() {
  static FunctionLimits* const limits = new FunctionLimits;
  return *limits;
}

// What host code asked for since reset_host_calls().
struct Noted {
  std::mutex mutex;
  std::vector<std::pair<std::string, const void*>> enqueued;  // "kernel flash_forward", its stream
  std::vector<std::string> waits;                             // "cudaDeviceSynchronize"
  std::size_t bytes_before = 0, blocks = 0, threads = 0;
};
Noted& noted() {
  static Noted* const notes = new Noted;
  return *notes;
}

// The allocation that [memory, memory + bytes) lies inside of, or nullptr.
Allocation* allocation_of(const void* memory, std::size_t bytes) {
  Allocation* const allocation = DeviceMemory::instance().find(memory);
  return allocation != nullptr && allocation->holds(memory, bytes) ? allocation : nullptr;
}

bool is_host(const void* memory) {
  const Allocation* const managed = DeviceMemory::instance().find(memory);
  return memory != nullptr && (!DeviceMemory::instance().contains(memory) ||
                               (managed != nullptr && managed->is_managed));
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ||
                         (kind == cudaMemcpyDefault && !is_host(to));
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ||
                           (kind == cudaMemcpyDefault && !is_host(from));
  Allocation* const target = to_device ? allocation_of(to, bytes) : nullptr;
  Allocation* const source = from_device ? allocation_of(from, bytes) : nullptr;

  if (to_device ? target == nullptr : !is_host(to)) return cudaErrorInvalidValue;
  if (from_device ? source == nullptr : !is_host(from)) return cudaErrorInvalidValue;
  const DeviceMemory::Open open;
  std::memmove(to, from, bytes);
  if (target == nullptr) return cudaSuccess;
  const std::size_t begin = target->offset(to);
  target->shadow.initialized.insert(begin, bytes);
  for (std::size_t i = 0; source != nullptr && i < bytes; ++i)
    if (source->shadow.initialized.bits(source->offset(from) + i, 1) == 0)
      target->shadow.initialized.remove(begin + i, 1);  // unwritten there, so unwritten here
  return cudaSuccess;
}

cudaError_t allocate(void** memory, std::size_t bytes, bool is_managed = false) {
  if (memory == nullptr) return cudaErrorInvalidValue;
  install_fault_handler();
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (is_elsewhere()) {
    const Answer answer = ask({.what = Request::kAllocate, .bytes = bytes});
    *memory = const_cast<void*>(answer.memory);
    return static_cast<cudaError_t>(answer.error);
  }
  *memory = DeviceMemory::instance().allocate(bytes, is_managed);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t release(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (is_elsewhere())
    return static_cast<cudaError_t>(ask({.what = Request::kFree, .address = memory}).error);
  return DeviceMemory::instance().free(memory) ? cudaSuccess : cudaErrorInvalidValue;
}

struct ErrorText {
  const char* name;
  const char* text;
};
ErrorText text_of_error(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return {"cudaSuccess", "no error"};
    case cudaErrorInvalidValue: return {"cudaErrorInvalidValue", "invalid argument"};
    case cudaErrorMemoryAllocation: return {"cudaErrorMemoryAllocation", "out of memory"};
    case cudaErrorInvalidConfiguration:
      return {"cudaErrorInvalidConfiguration", "invalid configuration argument"};
    case cudaErrorInvalidDevice: return {"cudaErrorInvalidDevice", "invalid device ordinal"};
    case cudaErrorInvalidResourceHandle:
      return {"cudaErrorInvalidResourceHandle", "invalid resource handle"};
  }
  return {"cudaErrorUnknown", "unknown error"};
}

}  // namespace

void note_wait(const char* what) {
  if (is_elsewhere()) {
    Request request{.what = Request::kWait};
    std::snprintf(request.name, sizeof request.name, "%s", what);
    (void)ask(request);
    return;
  }
  const std::scoped_lock lock(noted().mutex);
  noted().waits.push_back(what);
}
void note_enqueued(const std::string& what, const void* stream) {
  const std::scoped_lock lock(noted().mutex);
  noted().enqueued.push_back({what, stream});
}
void note_launch(const KernelCall& call) {
  note_enqueued("kernel " + std::string(call.name), call.stream);
  const std::scoped_lock lock(noted().mutex);
  const auto count = [](const uint3& of) { return std::size_t{of.x} * of.y * of.z; };
  noted().blocks += count(call.grid);
  noted().threads = std::max(noted().threads, count(call.block));
}
HostCalls host_calls(const void* stream) {
  const std::scoped_lock lock(noted().mutex);
  // Our own kernels need up to 6 KiB: the compiler for the CPU keeps what a GPU has in registers on
  // the stack, and some of it twice.
  constexpr std::size_t kMostLocalBytes = 8 * 1024;
  const auto& [local_bytes, kernel, module, pc] = Checks::local_memory;
  HostCalls calls{
      .elsewhere = {},
      .waits = noted().waits,
      // With those of a thread that has too many, which then count also where a race hides the
      // text.
      .peak_bytes = DeviceMemory::instance().peak() - noted().bytes_before +
                    (local_bytes > kMostLocalBytes ? local_bytes : 0),
      .kept_bytes = DeviceMemory::instance().in_use() - noted().bytes_before,
      .blocks = noted().blocks,
      .threads = noted().threads,
      .local_memory =
          local_bytes <= kMostLocalBytes
              ? ""
              : text_of("A thread of `", kernel, "` has ", local_bytes,
                        " bytes of local variables at ", place_text(locate(*module, pc)),
                        ". What its registers cannot hold, 1020 bytes, a GPU keeps in device "
                        "memory; at most ",
                        kMostLocalBytes, " bytes are allowed here."),
  };
  for (const auto& [what, on] : noted().enqueued)
    if (on != stream) calls.elsewhere.push_back(what);
  return calls;
}
void reset_host_calls() {
  const std::scoped_lock lock(noted().mutex);
  noted().enqueued.clear();
  noted().waits.clear();
  noted().blocks = noted().threads = 0;
  Checks::local_memory = {};
  DeviceMemory::instance().reset_peak();
  noted().bytes_before = DeviceMemory::instance().in_use();
}

cudaError_t fill(void* memory, int value, std::size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  Allocation* const allocation = allocation_of(memory, bytes);
  if (allocation == nullptr) return result(cudaErrorInvalidValue);
  const DeviceMemory::Open open;
  std::memset(memory, value, bytes);
  allocation->shadow.initialized.insert(allocation->offset(memory), bytes);
  return cudaSuccess;
}

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

std::optional<std::size_t> allowed_dynamic_shared(const void* function) {
  const std::scoped_lock lock(function_limits().mutex);
  const auto found = function_limits().dynamic_shared.find(function);
  return found != function_limits().dynamic_shared.end() ? std::optional(found->second)
                                                         : std::nullopt;
}

}  // namespace flash::simt

using namespace flash::simt;

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
  return result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return result(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name,
                "CUDA on the CPU (emulated, compute capability 9.0)");
  properties->totalGlobalMem = DeviceMemory::kTotal;
  properties->sharedMemPerBlock = SharedMemory::kWithoutAsking;
  properties->sharedMemPerBlockOptin = SharedMemory::kMost;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->major = 9;
  // So few that blocks that stay on one take several tiles of a small problem too.
  const char* const text = std::getenv("FLASH_SIMT_MULTIPROCESSORS");
  properties->multiProcessorCount = text == nullptr ? 2 : std::atoi(text);
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->l2CacheSize = 50 * 1024 * 1024;
  for (const auto& [axis, threads, blocks] :
       {std::array{0, 1024, 2147483647}, {1, 1024, 65535}, {2, 64, 65535}}) {
    properties->maxThreadsDim[axis] = threads;
    properties->maxGridSize[axis] = blocks;
  }
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  properties->sharedMemPerMultiprocessor = SharedMemory::kMost + 1024;
  properties->totalConstMem = 65536;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, device)) return error;
  const auto give = [value](auto number) { return *value = static_cast<int>(number), cudaSuccess; };
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: return give(p.maxThreadsPerBlock);
    case cudaDevAttrMaxSharedMemoryPerBlock: return give(p.sharedMemPerBlock);
    case cudaDevAttrWarpSize: return give(p.warpSize);
    case cudaDevAttrMultiProcessorCount: return give(p.multiProcessorCount);
    case cudaDevAttrL2CacheSize: return give(p.l2CacheSize);
    case cudaDevAttrMaxThreadsPerMultiProcessor: return give(p.maxThreadsPerMultiProcessor);
    case cudaDevAttrComputeCapabilityMajor: return give(p.major);
    case cudaDevAttrComputeCapabilityMinor: return give(p.minor);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return give(p.sharedMemPerMultiprocessor);
    case cudaDevAttrMaxRegistersPerMultiprocessor: return give(p.regsPerMultiprocessor);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return give(p.sharedMemPerBlockOptin);
  }
  return result(cudaErrorInvalidValue);
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorString(cudaError_t error) { return text_of_error(error).text; }
const char* cudaGetErrorName(cudaError_t error) { return text_of_error(error).name; }

cudaError_t cudaMalloc(void** memory, std::size_t bytes) { return result(allocate(memory, bytes)); }
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned) {
  return result(allocate(memory, bytes, true));
}
cudaError_t cudaFree(void* memory) { return result(release(memory)); }
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = std::malloc(bytes);
  return result(*memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *total_bytes = DeviceMemory::kTotal;
  *free_bytes = DeviceMemory::kTotal - DeviceMemory::instance().in_use();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  *pool = nullptr;
  return result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  note_wait("cudaMemcpy");
  return result(copy(to, from, bytes, kind));
}
static cudaError_t note_and_fill(const char* what, void* memory, int value, std::size_t bytes,
                                 const void* stream) {
  if (is_elsewhere()) {
    Request request{.what = Request::kFill,
                    .value = value,
                    .address = memory,
                    .bytes = bytes,
                    .stream = stream};
    std::snprintf(request.name, sizeof request.name, "%s", what);
    return result(static_cast<cudaError_t>(ask(request).error));
  }
  note_enqueued(what, stream);
  return fill(memory, value, bytes);
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  return note_and_fill("cudaMemset", memory, value, bytes, nullptr);
}

// Waits for what is enqueued, unlike the functions that take a stream.
cudaError_t cudaDeviceSynchronize() { return note_wait("cudaDeviceSynchronize"), cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return note_wait("cudaStreamSynchronize"), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  note_enqueued("cudaMemcpyAsync", stream);
  return result(copy(to, from, bytes, kind));
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  return note_and_fill("cudaMemsetAsync", memory, value, bytes, stream);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return *stream = new CUstream_st{flags}, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new CUevent_st, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  if (event == nullptr) return result(cudaErrorInvalidResourceHandle);
  event->recorded = true;
  event->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  note_wait("cudaEventSynchronize");
  return result(event != nullptr ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (start == nullptr || end == nullptr || !start->recorded || !end->recorded)
    return result(cudaErrorInvalidResourceHandle);
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int value) {
  if (is_elsewhere())
    return result(static_cast<cudaError_t>(
        ask({.what = Request::kAllowShared, .value = value, .address = function}).error));
  const std::size_t arrays = static_shared_bytes(module_of(function), function);
  if (value < 0 || static_cast<std::size_t>(value) + arrays > SharedMemory::kMost)
    return result(cudaErrorInvalidValue);
  const std::scoped_lock lock(function_limits().mutex);
  function_limits().dynamic_shared[function] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
