// What makes a runner one for a class: beyond its sandbox (tools/lab/judge/sandbox.py), what
// it may take and what it may ask of the kernel. It starts no process, opens no file to write, and
// makes no connection.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "harness/runner/runner.hpp"

namespace flash::grading {
namespace {

constexpr rlim_t kMemory = rlim_t{3} << 30;     // of one runner
constexpr rlim_t kReserved = rlim_t{68} << 30;  // of address space, by the emulator; most is empty
constexpr rlim_t kStack = rlim_t{1} << 20;      // a large array there is memory too
constexpr rlim_t kProcessorSeconds = 600;       // of one runner, which serves many calls

void take_little(const Facts& facts) {
  const auto limit = [](auto what, rlim_t most) {
    const rlimit both{most, most};
    setrlimit(what, &both);
  };
  limit(RLIMIT_CORE, 0);
  // A GPU's driver reserves address space for the memory of all devices.
  if (facts.backend != "gpu") limit(RLIMIT_AS, facts.is_emulated() ? kMemory + kReserved : kMemory);
  limit(RLIMIT_DATA, kMemory);  // what can be written to
  limit(RLIMIT_STACK, kStack);
  limit(RLIMIT_CPU, kProcessorSeconds);
  limit(RLIMIT_FSIZE, 1 << 16);
  limit(RLIMIT_NOFILE, 64);
  limit(RLIMIT_MEMLOCK, 0);
}

// System calls that arithmetic needs, and the loading of a library. All others fail with EPERM;
// those that start a process end this one.
void allow_few_system_calls(const std::vector<unsigned>& more) {
  const unsigned allowed[] = {
      SYS_read,        SYS_write,    SYS_close,          SYS_fstat,        SYS_lseek,
      SYS_mmap,        SYS_mprotect, SYS_munmap,         SYS_brk,          SYS_mremap,
      SYS_madvise,     SYS_pread64,  SYS_openat,         SYS_newfstatat,   SYS_recvmsg,
      SYS_futex,       SYS_exit,     SYS_exit_group,     SYS_getrandom,    SYS_clock_gettime,
      SYS_gettid,      SYS_getpid,   SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_tgkill,
      SYS_sched_yield,
  };
  const unsigned deadly[] = {
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
#ifdef __x86_64__
  constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
#else
  constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
#endif
  std::vector<sock_filter> filter;
  const auto load = [&](std::size_t offset) {
    filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset)));
  };
  const auto end = [&](unsigned how) { filter.push_back(BPF_STMT(BPF_RET | BPF_K, how)); };
  load(offsetof(seccomp_data, arch));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
  end(SECCOMP_RET_KILL_PROCESS);
  load(offsetof(seccomp_data, nr));
  const auto all_of = [&](const auto& calls, unsigned how) {
    for (const unsigned call : calls) {
      filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
      end(how);
    }
  };
  all_of(allowed, SECCOMP_RET_ALLOW);
  all_of(more, SECCOMP_RET_ALLOW);
  all_of(deadly, SECCOMP_RET_KILL_PROCESS);
  end(SECCOMP_RET_ERRNO | EPERM);
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    _exit(4);
}

}  // namespace

const bool kIsSandboxed = true;

void restrict_process(const std::vector<unsigned>& more, const Facts& facts) {
  take_little(facts);
  allow_few_system_calls(more);
}

}  // namespace flash::grading
