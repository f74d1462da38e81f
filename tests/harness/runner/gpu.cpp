// A runner of CUDA tasks on a GPU.
#include <sys/syscall.h>

#include <cstdlib>
#include <vector>

#include "common/cuda/device.hpp"
#include "harness/runner/runner.hpp"

namespace flash::grading {

// Makes what the driver opens files for, and starts threads for. What it needs after that was found
// by tracing a process with CUDA 13 that loads a library, maps memory and runs kernels.
Needs prepared_for(const std::vector<std::string>&, Facts& facts) {
  facts.backend = "gpu";
  facts.has_device = device::count() > 0;
  if (!facts.has_device) return {};
  facts.shared_memory = device::shared_memory_per_block();
  facts.free_memory = device::memory_info().free_bytes;
  device::free(device::allocate(1 << 20));
  run_nothing();
  return {{SYS_ioctl, SYS_fcntl, SYS_poll}};
}

std::string finding() { return ""; }
bool found_races_only() { return false; }
void run_in_step(bool) {}
std::size_t workspace_bytes() { return 0; }
void skip_kernels(bool) {}
void reuse_addresses() {}
void let_host_access(bool) {}
void name_memory(const void*, const std::string&, bool) {}
void note_problem(const std::string&) {}
std::vector<void*> thrown_from() { return {}; }
bool parts_from_host_code() { return false; }
void serve_host_code(std::uintptr_t) { std::abort(); }
void meet_host_code(std::uintptr_t) {}
void call_host_code(const Message& call, Message& done) { run_host_code(call, done); }

}  // namespace flash::grading
