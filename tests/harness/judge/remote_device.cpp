// The device of a judge, what the cases need of common/cuda/device.hpp: memory of the host, of
// which a call takes copies. How much memory a call took, what its kernels moved and what host code
// asked for, the runner says.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "common/cuda/device.hpp"
#include "common/error.hpp"
#include "harness/cases/busy_stream.hpp"
#include "harness/cases/device_checks.hpp"
#include "harness/cases/surroundings.hpp"
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
grading::Kernels next_kernels = grading::Kernels::kRun;
device::SharedAccesses in_shared_memory;
device::Work work_done;
std::optional<device::HostCalls> last_host_calls;

Allocation* find(const void* memory) {
  auto above = allocations.upper_bound(static_cast<const char*>(memory));
  if (above == allocations.begin()) return nullptr;
  const auto& [begin, allocation] = *--above;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(memory) - begin);
  return offset < allocation.bytes ? &above->second : nullptr;
}

}  // namespace

namespace grading {

Message device_call(Call call) {
  call.on_device = true;
  call.kernels = std::exchange(next_kernels, Kernels::kRun);
  last_host_calls.reset();
  const auto kept = static_cast<std::size_t>(kept_memory());  // by earlier calls: it counts, too
  const auto count = [&call, kept](const Message& done) {
    is_counted = done.counted != 0;
    peak = std::max(peak, in_use + kept + done.device_bytes);
    if (done.integers[0] != 0) {
      auto& calls = last_host_calls.emplace();
      calls.peak_bytes = static_cast<std::size_t>(done.integers[1]);
      calls.blocks = static_cast<std::size_t>(done.integers[2]);
      calls.threads = static_cast<std::size_t>(done.integers[3]);
    }
    in_shared_memory += done.shared;
    work_done += done.work;
    for (std::size_t n = 0; n < call.arguments.size(); ++n)
      if (Allocation* const allocation = find(call.arguments[n].data))
        allocation->traffic += done.moved[n];
  };
  Message done;
  try {
    done = remote_call(call);
  } catch (const KernelError&) {  // what was moved and in use is known
    count(last_answer());
    throw;
  }
  count(done);
  if (last_host_calls) {
    Message words = done;
    if (const std::string what = first_line(words); !what.empty())
      last_host_calls->elsewhere.push_back(what);
    if (const std::string what = first_line(words); !what.empty())
      last_host_calls->waits.push_back(what);
    last_host_calls->local_memory = first_line(words);
  }
  return done;
}

}  // namespace grading

namespace device {

int count() noexcept { return 1; }
bool is_emulated() noexcept { return false; }  // the runner forbids what lies around each tensor
void synchronize() {}
std::size_t shared_memory_per_block() { return grading::facts().shared_memory; }

void* allocate(std::size_t bytes, Stream) {
  if (bytes == 0) return nullptr;
  const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* const memory = static_cast<char*>(std::aligned_alloc(kAlignment, whole));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0xff, whole);
  allocations[memory] = {bytes, {}};
  harness::note_memory(memory, bytes);
  in_use += bytes;
  return memory;
}

void free(void* memory, Stream) noexcept {
  const auto found = allocations.find(static_cast<const char*>(memory));
  if (found == allocations.end()) return;
  in_use -= found->second.bytes;
  allocations.erase(found);
  harness::forget_memory(memory);
  std::free(memory);
}

std::size_t memory_in_use() { return in_use; }
std::size_t peak_memory() { return peak; }
void reset_peak_memory() { peak = memory_in_use(); }

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
std::optional<SharedAccesses> shared_accesses() {
  if (!is_counted) return std::nullopt;
  return in_shared_memory;
}
std::optional<Work> work() {
  if (!is_counted) return std::nullopt;
  return work_done;
}
void reset_traffic(bool counts_warps) {
  next_kernels = counts_warps ? grading::Kernels::kCounted : grading::Kernels::kRun;
  in_shared_memory = {};
  work_done = {};
  for (auto& [memory, allocation] : allocations) allocation.traffic = {};
}
std::optional<HostCalls> host_calls(Stream) { return last_host_calls; }
void reset_host_calls() {}
void forbid(const void*, std::size_t) {}

IndependentStream::IndependentStream() : stream_{&grading::own_stream} {}
IndependentStream::~IndependentStream() = default;

}  // namespace device

Stream harness::busy_stream() { return {&grading::busy_stream}; }
bool harness::only_races_were_found() { return grading::only_races_were_found(); }
std::size_t harness::workspace_bytes() {
  return static_cast<std::size_t>(grading::last_answer().numbers[1]);
}
void harness::skip_next_kernels() { next_kernels = grading::Kernels::kSkipped; }

}  // namespace flash
