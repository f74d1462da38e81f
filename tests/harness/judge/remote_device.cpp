// The device of a judge of CUDA tasks, what the cases need of common/cuda/device.hpp: memory of the
// host, of which a call takes copies. How much memory a call took and what its kernels moved, the
// runner's emulator says.
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <stdexcept>

#include "common/cuda/device.hpp"
#include "common/error.hpp"
#include "emulator/run/shared_memory.hpp"
#include "harness/judge/remote.hpp"

namespace flash {
namespace {

struct Allocation {
  std::size_t bytes;
  device::Traffic traffic;
};

constexpr std::size_t kAlignment = 256;
std::map<const char*, Allocation> allocations;  // by their first byte
std::size_t in_use = 0, peak = 0;
bool is_counted = false;
std::size_t reads_of_shared_memory = 0;

Allocation* find(const void* memory) {
  auto above = allocations.upper_bound(static_cast<const char*>(memory));
  if (above == allocations.begin()) return nullptr;
  const auto& [begin, allocation] = *--above;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(memory) - begin);
  return offset < allocation.bytes ? &above->second : nullptr;
}

}  // namespace

namespace grading {

void device_call(Call call) {
  call.on_device = true;
  const Message done = remote_call(call);
  peak = std::max(peak, in_use + done.device_bytes);
  is_counted = done.counted != 0;
  reads_of_shared_memory += done.shared_reads;
  for (std::size_t n = 0; n < call.arguments.size(); ++n)
    if (Allocation* const allocation = find(call.arguments[n].data)) {
      allocation->traffic.loaded_bytes += done.moved[n].loaded;
      allocation->traffic.stored_bytes += done.moved[n].stored;
    }
}

}  // namespace grading

namespace device {

int count() noexcept { return 1; }
bool is_emulated() noexcept { return true; }
void synchronize() {}

void* allocate(std::size_t bytes, Stream) {
  if (bytes == 0) return nullptr;
  const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* const memory = static_cast<char*>(std::aligned_alloc(kAlignment, whole));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0xff, whole);
  allocations[memory] = {bytes, {}};
  in_use += bytes;
  return memory;
}

void free(void* memory, Stream) noexcept {
  const auto found = allocations.find(static_cast<const char*>(memory));
  if (found == allocations.end()) return;
  in_use -= found->second.bytes;
  allocations.erase(found);
  std::free(memory);
}

std::size_t memory_in_use() { return in_use; }
std::size_t peak_memory() { return peak; }
void reset_peak_memory() { peak = in_use; }
MemoryInfo memory_info() { return {}; }
std::size_t shared_memory_per_block() { return simt::SharedMemory::kMost; }

void copy_to_device(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}
void copy_to_host(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}
void fill_bytes(void* device, unsigned char value, std::size_t bytes, Stream) {
  std::memset(device, value, bytes);
}

std::optional<Traffic> traffic(const void* memory) {
  const Allocation* const allocation = find(memory);
  if (!is_counted || allocation == nullptr) return std::nullopt;
  return allocation->traffic;
}
std::optional<std::size_t> shared_reads() {
  if (!is_counted) return std::nullopt;
  return reads_of_shared_memory;
}
void reset_traffic() {
  reads_of_shared_memory = 0;
  for (auto& [memory, allocation] : allocations) allocation.traffic = {};
}
std::optional<HostCalls> host_calls(Stream) { return std::nullopt; }
void reset_host_calls() {}
void forbid(const void*, std::size_t) {}  // the runner forbids what lies around each tensor

IndependentStream::IndependentStream() {
  throw std::logic_error("the judge: a case asks for a stream, which the emulator does not have");
}
IndependentStream::~IndependentStream() = default;

}  // namespace device
}  // namespace flash
