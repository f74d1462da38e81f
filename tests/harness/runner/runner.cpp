// main() of a runner: loads the student's library, and calls it when the judge says so.
//
// Nothing here is trusted: once the library is loaded, its code can change anything in this
// process. What it cannot do is said to the kernel before it is loaded: it starts no process, opens
// no file to write, and makes no connection.
#include "harness/runner/runner.hpp"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/memory_meter.hpp"
#include "harness/judge/ended.hpp"

namespace flash::grading {
namespace {

void* library = nullptr;

void send(const Message& message) {
  if (write(kSocket, &message, sizeof message) != static_cast<ssize_t>(sizeof message)) _exit(3);
}

// The next message of the judge, and the descriptor that came with it.
Message receive(int* fd = nullptr) {
  Message message;
  iovec part{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  if (recvmsg(kSocket, &header, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof message))
    _exit(3);  // the judge has ended
  const cmsghdr* const item = CMSG_FIRSTHDR(&header);
  if (fd != nullptr && item != nullptr) memcpy(fd, CMSG_DATA(item), sizeof *fd);
  return message;
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

void serve() {
  int fd = -1;
  const Message call = receive(&fd);
  const bool on_device = call.kind == Kind::kMapDevice;
  // With all its pages, so that a call that is timed finds them.
  void* const memory = on_device ? mapped_on_device(fd, call.bytes)
                                 : mmap(nullptr, call.bytes, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) _exit(5);
  if (fd >= 0) close(fd);
  Message answer{};
  answer.kind = Kind::kMapped;
  send(answer);
  (void)receive();
  answer = Message{};
  answer.kind = Kind::kDone;
  try {
    answer.bytes = host_memory::extra_bytes_of(
        [&] { call.function == kNothing ? run_nothing() : run(call, memory, answer); });
  } catch (...) {
    put_exception(answer);
  }
  std::fflush(stdout);
  send(answer);  // and then the rest, which is no part of the call
  if (!on_device) munmap(memory, call.bytes);
}

}  // namespace

void* symbol(const char* mangled_name) {
  void* const found = dlsym(library, mangled_name);
  if (found == nullptr) throw Error(std::string("your library has no ") + mangled_name);
  return found;
}

Message ask_judge(Callback what, Message question) {
  question.kind = Kind::kCallback;
  question.function = what;
  send(question);
  const Message answer = receive();
  if (answer.ended != Ended::kReturned) throw_again(answer);
  return answer;
}

}  // namespace flash::grading

int main(int argc, char** argv) {
  using namespace flash::grading;
  if (argc != 2) return 2;
  // So that what is allocated is seen by the kernel's count of this process too.
  mallopt(M_TOP_PAD, 0);
  mallopt(M_MMAP_THRESHOLD, 64 * 1024);
  Message first{};
  first.kind = Kind::kReady;
  const int there = open(argv[1], O_RDONLY | O_CLOEXEC);
  if (there < 0) return 6;
  close(there);
  const std::vector<unsigned> more = prepared_for(argv[1]);
  // Before the library's own code runs: what the judge believes about this process, it has now.
  send(first);
  allow_few_system_calls(more);
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "terminate called: %s\n", dlerror());
    return 7;
  }
  for (;;) serve();
}
