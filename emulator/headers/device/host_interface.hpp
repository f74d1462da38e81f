// What common/cuda asks of the emulator beyond CUDA's own functions: what kernels moved, and what
// host code asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/counted.hpp"
#include "common/export.hpp"

namespace flash::simt {

// Whether a kernel that is compiled with checks was launched in this process.
FLASH_EXPORT bool checking();

// Counted in checked launches since reset_counters().
using device::SharedAccesses, device::Traffic, device::Work;
FLASH_EXPORT Traffic traffic(const void* device_memory);
FLASH_EXPORT SharedAccesses shared_accesses();
FLASH_EXPORT Work work();
// From now on what warps do is counted, or is not; at first it is not.
FLASH_EXPORT void reset_counters(bool counts_warps = true);

// All is done at once here, whatever stream it was asked for, and a wait is none. So what was asked
// since reset_host_calls() is written down.
struct HostCalls {
  std::vector<std::string> elsewhere;   // what was enqueued on another stream than `stream`
  std::vector<std::string> waits;       // calls that wait for the device
  std::size_t peak_bytes = 0;           // of memory beyond what there was
  std::size_t kept_bytes = 0;           // of it, what is still there
  std::size_t blocks = 0, threads = 0;  // of all launches; of the largest of their blocks
  std::string local_memory = "";        // of a thread with too much, in checked launches
};
FLASH_EXPORT HostCalls host_calls(const void* stream);
FLASH_EXPORT void reset_host_calls();

// Forbids kernels to access [memory, memory + bytes), part of an allocation: what lies around a
// tensor.
FLASH_EXPORT void forbid(const void* memory, std::size_t bytes);

}  // namespace flash::simt
