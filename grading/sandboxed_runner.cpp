// What makes a runner one for a class: beyond its sandbox (tools/lab/submission/sandbox.py), what
// it may take and what it may ask of the kernel. It starts no process, opens no file to write, and
// makes no connection. Once the student's library is loaded it opens no file at all.
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "harness/runner/runner.hpp"

namespace flash::grading {
namespace {

constexpr rlim_t kMemory = rlim_t{3} << 30;  // of one runner
// On the CPU, where code that takes all it gets does so in each case: 2 s for 3 GiB.
constexpr rlim_t kMemoryOnCpu = rlim_t{1} << 30;
constexpr rlim_t kReserved = rlim_t{68} << 30;  // of address space, by the emulator; most is empty
constexpr rlim_t kProcessorSeconds = 600;       // of one runner, which serves many calls

void take_little(const Facts& facts) {
  const auto limit = [](auto what, rlim_t most) {
    const rlimit both{most, most};
    setrlimit(what, &both);
  };
  const rlim_t memory = facts.backend == "cpu" ? kMemoryOnCpu : kMemory;
  limit(RLIMIT_CORE, 0);
  // A GPU's driver reserves address space for the memory of all devices.
  if (facts.backend != "gpu") limit(RLIMIT_AS, facts.is_emulated() ? memory + kReserved : memory);
  limit(RLIMIT_DATA, memory);  // what can be written to
  limit(RLIMIT_CPU, kProcessorSeconds);
  limit(RLIMIT_FSIZE, 1 << 16);
  limit(RLIMIT_NOFILE, 64);
  limit(RLIMIT_MEMLOCK, 0);
}

// A program for the kernel, which looks at each system call.
class Filter {
 public:
  Filter() {
#ifdef __x86_64__
    constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#else
    constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#endif
    load(offsetof(seccomp_data, arch));
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
    end(SECCOMP_RET_KILL_PROCESS);
  }

  // Kills what asks from code outside of [begin, end).
  void allow_callers(std::uint64_t begin, std::uint64_t last) {
    jump_unless_between(offsetof(seccomp_data, instruction_pointer), begin, last, 1);
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0));
    end(SECCOMP_RET_KILL_PROCESS);
  }

  template <class Calls>
  void all_of(const Calls& calls, unsigned how) {
    load(offsetof(seccomp_data, nr));
    for (const unsigned call : calls) {
      filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
      end(how);
    }
  }

  // Refuses the call where its argument has one of these bits; where its first argument is an
  // address from `begin` to `last`, it may.
  void refuse(unsigned call, int argument, unsigned bits, std::uint64_t begin = 1,
              std::uint64_t last = 0) {
    load(offsetof(seccomp_data, nr));
    const bool has_exception = begin <= last;
    const auto length = static_cast<unsigned char>(has_exception ? 10 : 3);
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, length));
    if (has_exception) {
      jump_unless_between(offsetof(seccomp_data, args), begin, last, 1);
      filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JA, 3, 0, 0));
    }
    load(offsetof(seccomp_data, args) + 8u * static_cast<unsigned>(argument));
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1));
    end(SECCOMP_RET_ERRNO | EPERM);
  }

  // The call where its first argument is this number.
  void with(unsigned call, unsigned first_argument, unsigned how) {
    load(offsetof(seccomp_data, nr));
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3));
    load(offsetof(seccomp_data, args));
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, first_argument, 0, 1));
    end(how);
  }
  // Of the judge's socket: a FILE, whose number anybody can change, writes to others only.
  void only_send() {
    with(SYS_write, kSocket, SECCOMP_RET_ERRNO | EPERM);
    with(SYS_sendto, kSocket, SECCOMP_RET_ALLOW);
  }

  void install(unsigned otherwise) {
    end(otherwise);
    const sock_fprog program{static_cast<unsigned short>(filter_.size()), filter_.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      _exit(4);
  }

 private:
  void load(std::size_t offset) {
    filter_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset)));
  }
  void end(unsigned how) { filter_.push_back(BPF_STMT(BPF_RET | BPF_K, how)); }

  // Six instructions: beyond the next `skipped` where the number at `offset` is not from `begin` to
  // `last`. Both lie in the same 4 GiB, or the lower half is not looked at.
  void jump_unless_between(std::size_t offset, std::uint64_t begin, std::uint64_t last,
                           unsigned char skipped) {
    const auto high = [](std::uint64_t all) { return static_cast<unsigned>(all >> 32); };
    const bool is_near = high(begin) == high(last);
    const auto low = [&](std::uint64_t all, unsigned otherwise) {
      return is_near ? static_cast<unsigned>(all) : otherwise;
    };
    load(offset + 4);
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, high(begin), 0,
                               static_cast<unsigned char>(4 + skipped)));
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, high(last),
                               static_cast<unsigned char>(3 + skipped), 0));
    load(offset);
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, low(begin, 0), 0,
                               static_cast<unsigned char>(1 + skipped)));
    filter_.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, low(last, ~0u), skipped, 0));
  }

  std::vector<sock_filter> filter_;
};

// System calls that arithmetic needs. All others fail with EPERM; those that start a process end
// this one.
constexpr unsigned kArithmetic[] = {
    SYS_write,       SYS_close,          SYS_fstat,         SYS_newfstatat,
    SYS_mmap,        SYS_mprotect,       SYS_munmap,        SYS_brk,
    SYS_madvise,     SYS_recvmsg,        SYS_futex,         SYS_exit,
    SYS_exit_group,  SYS_getrandom,      SYS_clock_gettime, SYS_gettid,
    SYS_getpid,      SYS_rt_sigprocmask, SYS_rt_sigreturn,  SYS_tgkill,
    SYS_sched_yield,
};
constexpr unsigned kLoading[] = {SYS_read, SYS_lseek, SYS_pread64, SYS_openat};
constexpr unsigned kFromAnywhere[] = {  // of the kernel's own page of code
    SYS_clock_gettime, SYS_getrandom, SYS_rt_sigreturn};
constexpr unsigned kDeadly[] = {
    SYS_clone,
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_socket,
    SYS_kill,
    SYS_memfd_create,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_unshare,
    SYS_setns,
    SYS_mount,
#ifdef SYS_fork
    SYS_fork,
    SYS_vfork,
#endif
#ifdef SYS_clone3
    SYS_clone3,
#endif
};

// The code of the C library, which alone asks the kernel for something.
std::pair<std::uint64_t, std::uint64_t> code_of_library() {
  struct Search {
    std::uint64_t address, begin = 0, last = ~std::uint64_t{0};
  } search{reinterpret_cast<std::uint64_t>(&::write)};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& found = *static_cast<Search*>(data);
        for (int n = 0; n < info->dlpi_phnum; ++n) {
          const auto& segment = info->dlpi_phdr[n];
          const std::uint64_t begin = info->dlpi_addr + segment.p_vaddr,
                              last = begin + segment.p_memsz - 1;
          if (segment.p_type == PT_LOAD && found.address >= begin && found.address <= last)
            found.begin = begin, found.last = last;
        }
        return 0;
      },
      &search);
  return {search.begin, search.last};
}

}  // namespace

const bool kIsSandboxed = true;

void restrict_process(const Needs& needs, const Facts& facts) {
  take_little(facts);
  Filter filter;
  if (facts.backend != "gpu") filter.refuse(SYS_openat, 2, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC);
  filter.only_send();
  filter.all_of(kArithmetic, SECCOMP_RET_ALLOW);
  filter.all_of(kLoading, SECCOMP_RET_ALLOW);
  filter.all_of(needs.calls, SECCOMP_RET_ALLOW);
  filter.with(SYS_prctl, PR_SET_SECCOMP, SECCOMP_RET_ALLOW);  // of restrict_calls()
  filter.with(SYS_prctl, PR_SET_NO_NEW_PRIVS, SECCOMP_RET_ALLOW);
  filter.all_of(kDeadly, SECCOMP_RET_KILL_PROCESS);
  filter.install(SECCOMP_RET_ERRNO | EPERM);
}

// A GPU's driver asks for more, at any time.
void restrict_calls(const Needs& needs, const Facts& facts) {
  if (facts.backend == "gpu") return;
  Filter filter;
  filter.all_of(kFromAnywhere, SECCOMP_RET_ALLOW);
  const auto [begin, last] = code_of_library();
  filter.allow_callers(begin, last);
  // What is constant stays so, and nothing takes the place of what is mapped.
  filter.refuse(SYS_mprotect, 2, PROT_WRITE | PROT_EXEC, needs.protects_from, needs.protects_to);
  filter.refuse(SYS_mmap, 2, PROT_EXEC);
  filter.refuse(SYS_mmap, 3, MAP_FIXED | MAP_FIXED_NOREPLACE);
  filter.only_send();
  filter.all_of(kArithmetic, SECCOMP_RET_ALLOW);
  filter.all_of(needs.calls, SECCOMP_RET_ALLOW);
  filter.all_of(kDeadly, SECCOMP_RET_KILL_PROCESS);
  filter.install(SECCOMP_RET_ERRNO | EPERM);
}

}  // namespace flash::grading
