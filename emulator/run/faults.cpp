// Implements faults.hpp for Linux.
#include "emulator/run/faults.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "emulator/run/device_memory.hpp"
#include "emulator/run/module.hpp"
#include "emulator/run/worker.hpp"

namespace flash::simt {

using enum FindingKind;
namespace {

constexpr std::array<int, 4> kSignals{SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction previous_actions[65];

struct Fault {
  int signal, code;
  std::uintptr_t address;
  std::uintptr_t pc;
};
__thread Fault fault;

// Runs on the scheduler's stack, outside of the signal handler, in place of the instruction that
// faulted.
[[noreturn]] void report_fault() {
  Worker& worker = *Worker::current();
  const auto* const address = reinterpret_cast<const char*>(fault.address);
  const std::string who = worker.describe();
  const Location where = locate(worker.launch().module, fault.pc);
  if (fault.signal == SIGFPE)
    worker.fail(
        kFault, where,
        who +
            " divides an integer by zero, or the smallest one by -1. (A GPU continues with a "
            "meaningless result.)");
  if (fault.signal == SIGILL)
    worker.fail(kFault, where,
                who +
                    " executes an illegal instruction. A common cause is a function that ends "
                    "without its return statement.");
  if (const long stack = worker.stacks().overflowed(address); stack >= 0)
    worker.fail(kFault, where,
                text_of(worker.describe(static_cast<unsigned>(stack)),
                        " has more local variables than its stack holds: ",
                        FiberStacks::kStackBytes / 1024, " KiB."));
  if (worker.shared_memory().is_guard(address))
    worker.fail(kOutOfBounds, where,
                text_of(who, " accesses shared memory behind its end: ",
                        worker.shared_memory().dynamic_text(), "."));
  if (DeviceMemory::instance().contains(address)) {
    const std::string beside = DeviceMemory::instance().beside(address);
    worker.fail(
        kOutOfBounds, where,
        text_of(who, " accesses device memory that is not allocated, ",
                beside.empty() ? text_of("at ", static_cast<const void*>(address)) : beside, "."));
  }
  // The processor does not say the address of an instruction that needs an aligned one.
  if (fault.signal == SIGSEGV && fault.code == SI_KERNEL)
    worker.fail(kMisaligned, where,
                who +
                    " accesses several numbers at once at an address that is not a multiple of "
                    "their size (a float4 needs a multiple of 16 bytes), or far from all memory.");
  if (fault.address < 4096)
    worker.fail(kFault, where, who + " follows a null pointer, or an offset from one.");
  worker.fail(kFault, where,
              text_of(who, " accesses an illegal address, ",
                      address == nullptr ? "unknown" : text_of(static_cast<const void*>(address)),
                      ", which is far from all memory that it may access."));
}

void resume_at(ucontext_t& context, void (*function)(), void* stack) {
  const std::uintptr_t top =
      (reinterpret_cast<std::uintptr_t>(stack) - 512) & ~std::uintptr_t{63};  // below the red zone
#if defined(__x86_64__)
  context.uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(top - 8);
  context.uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(function);
#elif defined(__aarch64__)
  context.uc_mcontext.sp = top;
  context.uc_mcontext.pc = reinterpret_cast<std::uintptr_t>(function);
#endif
}

std::uintptr_t program_counter(const ucontext_t& context) {
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return context.uc_mcontext.pc;
#endif
}

void on_fault(int signal, siginfo_t* info, void* data) {
  auto& context = *static_cast<ucontext_t*>(data);
  if (Worker* const worker = Worker::current(); worker != nullptr) {
    fault = {signal, info->si_code, reinterpret_cast<std::uintptr_t>(info->si_addr),
             program_counter(context)};
    resume_at(context, report_fault, worker->scheduler_stack());
    return;
  }
  if (signal == SIGSEGV && DeviceMemory::instance().contains(info->si_addr)) {
    constexpr char kText[] =
        "host code follows a pointer to device memory, which only kernels and copies can access: "
        "copy the data with cudaMemcpy\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof kText - 1);
  }
  // Back to whoever handled it before: the instruction faults again there.
  sigaction(signal, &previous_actions[signal], nullptr);
}

}  // namespace

void use_alternate_signal_stack() {
  static constexpr std::size_t kBytes = 64 * 1024;
  struct Stack {
    void* memory = MAP_FAILED;
    Stack() {
      stack_t current{};
      if (sigaltstack(nullptr, &current) == 0 && !(current.ss_flags & SS_DISABLE)) return;
      memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) return;
      stack_t stack{};
      stack.ss_sp = memory;
      stack.ss_size = kBytes;
      sigaltstack(&stack, nullptr);
    }
    ~Stack() {
      if (memory == MAP_FAILED) return;
      stack_t none{};
      none.ss_flags = SS_DISABLE;
      sigaltstack(&none, nullptr);
      munmap(memory, kBytes);
    }
  };
  thread_local const Stack stack;
}

void install_fault_handler() {
  for (const int signal : kSignals) {
    struct sigaction current {};
    sigaction(signal, nullptr, &current);
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_fault) continue;
    previous_actions[signal] = current;
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(signal, &ours, nullptr);
  }
}

}  // namespace flash::simt
