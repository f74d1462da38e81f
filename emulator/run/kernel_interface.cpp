// Implements headers/device/kernel_interface.hpp: what a running thread calls.
#include "emulator/headers/device/kernel_interface.hpp"

#include "common/error.hpp"
#include "common/half.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

using enum FindingKind;

Worker& running_worker(const char* what) {
  Worker* const worker = Worker::current();
  if (worker == nullptr)
    throw Error(text_of(what, " was called outside of a kernel; only device code may call it"));
  return *worker;
}

unsigned thread_number() { return running_worker("a warp operation").thread_number(); }
void* dynamic_shared_memory() {
  return running_worker("dynamic shared memory").dynamic_shared_memory();
}
int barrier(const char* name, Site site, int predicate) {
  return running_worker(name).barrier(name, site, predicate);
}
void flash_simt_warp_operation(const WarpCall& call) {
  running_worker(call.name).warp_operation(call);
}
void nap(unsigned nanoseconds) { running_worker("__nanosleep").nap(nanoseconds); }

void read_from_absent_lane(const char* name, Site site, int reader, int source) {
  Worker& worker = running_worker(name);
  const unsigned first = worker.thread_number() / kWarpSize * kWarpSize;
  const uint3 block = worker.launch().call.block;
  worker.fail_in(first + static_cast<unsigned>(reader), kWarpMismatch, site,
                 text_of(name, ": lane ", reader, " reads from lane ", source,
                         ", which takes no part: it skipped this line (in an if, or in a loop that "
                         "it left earlier), has returned, is not in the mask, or does not exist. "
                         "On a GPU the value is undefined.\n",
                         worker.describe(first + static_cast<unsigned>(reader)), ", which has ",
                         block.x * block.y * block.z, " threads"));
}

void wrong_width(const char* name, Site site, int width) {
  running_worker(name).fail_at(kWrongArgument, site, name, ": its width is ", width,
                               "; it has to be 1, 2, 4, 8, 16 or 32.");
}

void flash_simt_before_atomic(const volatile void* address, std::size_t bytes, const void* pc,
                              bool compares) {
  Worker& worker = running_worker("an atomic operation");
  worker.before_atomic();  // first: no other thread may run between the check and the operation
  if (Checks* const checks = worker.checks())
    checks->atomic(const_cast<const void*>(address), bytes, call_before(pc), compares);
}

void fence() {
  if (Checks* const checks = running_worker("__threadfence").checks()) checks->fence();
}

void trap(Site site) {
  running_worker("__trap").fail_at(kAssertion, site, "A thread calls __trap().");
}

void misaligned(const char* what, Site site, const volatile void* address, std::size_t alignment) {
  Worker& worker = running_worker(what);
  worker.fail_at(kMisaligned, site, what, ": the address has to be a multiple of ", alignment,
                 "; it is ", reinterpret_cast<std::uintptr_t>(address) % alignment,
                 " bytes past one.");
}

void must_be_own(const char* what, Site site, const void* begin, std::size_t bytes) {
  Worker& worker = running_worker(what);
  const char* const stack = worker.stacks().begin(worker.thread_number());
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(begin) - stack);
  if (offset > FiberStacks::kStackBytes || bytes > FiberStacks::kStackBytes - offset)
    worker.fail_at(
        kWrongArgument, site, what,
        ": its operands are registers, so they have to be local variables of the thread.");
}

std::uint16_t bits_of_float16(double value, int exponent_bits) {
  return exponent_bits == 5 ? Half(value).bits : BFloat16(value).bits;
}
float float_of_float16(std::uint16_t bits, int exponent_bits) {
  return exponent_bits == 5 ? static_cast<float>(Half::from_bits(bits))
                            : static_cast<float>(BFloat16::from_bits(bits));
}

void async_copy(void* to, const void* from, int bytes, int valid) {
  running_worker("cp.async")
      .async_copies()
      .start(to, from, bytes, valid, call_before(__builtin_return_address(0)));
}
void async_commit() { running_worker("cp.async").async_copies().commit(); }
void async_wait(int groups) { running_worker("cp.async").async_copies().wait(groups); }

}  // namespace flash::simt
