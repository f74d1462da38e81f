// A runner of CUDA tasks: the student's kernels run on the emulator.
#include <sys/syscall.h>

#include "common/cuda/device.hpp"
#include "emulator/run/simt.hpp"
#include "harness/runner/runner.hpp"

namespace flash::grading {

Needs prepared_for(const char* path, Facts& facts) {
  facts.backend = FLASH_BACKEND;
  facts.shared_memory = device::shared_memory_per_block();
  // Here the emulator reserves its address space. Where a limit forbids that, the machine is to
  // blame, and not the student: the runner does not start.
  device::free(device::allocate(1));
  if (kIsSandboxed) simt::prepare(path);  // later it may not open files
  const auto [begin, bytes] = simt::device_memory();
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  return {{SYS_rt_sigaction, SYS_sigaltstack},  // of its handler of faults
          address,
          address + bytes - 1};
}

std::string finding() { return simt::first_finding(); }
void name_memory(const void* first_element, const std::string& name, bool is_input) {
  simt::name_memory(first_element, name, is_input);
}
void reuse_addresses() { simt::reuse_addresses(); }
void skip_kernels(bool skipped) { simt::skip_kernels(skipped); }
std::vector<void*> thrown_from() { return {}; }

}  // namespace flash::grading
