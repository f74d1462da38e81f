// A runner of CUDA tasks: the student's kernels run on the emulator.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <string>
#include <vector>

#include "common/cuda/device.hpp"
#include "emulator/run/simt.hpp"
#include "harness/judge/ended.hpp"
#include "harness/runner/runner.hpp"

namespace flash::grading {

Needs prepared_for(const std::vector<std::string>& libraries, Facts& facts) {
  facts.backend = FLASH_BACKEND;
  facts.shared_memory = device::shared_memory_per_block();
  simt::go_on_after_races();
  // Here the emulator reserves its address space. Where a limit forbids that, the machine is to
  // blame, and not the student: the runner does not start.
  device::free(device::allocate(1));
  if (kIsSandboxed)  // later it may not open files
    for (const std::string& library : libraries) simt::prepare(library);
  const auto [begin, bytes] = simt::device_memory();
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  return {{SYS_rt_sigaction, SYS_sigaltstack,  // of its handler of faults
           SYS_wait4},                         // of the process of host code
          address,
          address + bytes - 1};
}

std::string finding() { return simt::first_finding(); }
void run_in_step(bool in_step) { simt::run_in_step(in_step); }
bool found_races_only() { return simt::found_races_only(); }
std::size_t workspace_bytes() { return simt::workspace_bytes(); }
void name_memory(const void* first_element, const std::string& name, bool is_input) {
  simt::name_memory(first_element, name, is_input);
}
void note_problem(const std::string& text) { simt::note_problem(text); }
void reuse_addresses() { simt::reuse_addresses(); }
void let_host_access(bool allowed) { simt::let_host_access(allowed); }
void skip_kernels(bool skipped) { simt::skip_kernels(skipped); }
std::vector<void*> thrown_from() { return {}; }

// ---- Host code in a process of its own ----------------------------------------------------------

namespace {

constexpr int kHostCode = kSocket + 1;       // the runner's end of a socket to it
constexpr std::size_t kMostRequest = 16384;  // bytes

pid_t host_code = 0;

// As host code ended: the judge sees the runner end so.
[[noreturn]] void end_like_host_code() {
  int status = 0;
  while (waitpid(host_code, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  _exit(WEXITSTATUS(status));
}

// Host code may have sent a packet of any size.
void take(void* bytes, std::size_t size) {
  iovec part{bytes, size};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  ssize_t got;
  while ((got = recvmsg(kHostCode, &header, 0)) < 0 && errno == EINTR) {
  }
  if (got <= 0) end_like_host_code();
  if (got != static_cast<ssize_t>(size)) _exit(3);
}

void give(const Message& message) {
  if (write(kHostCode, &message, sizeof message) < 0) end_like_host_code();
}

simt::Answer ask_runner(const std::string& request) {
  Message question{};
  question.kind = Kind::kCallback;
  question.bytes = request.size();
  send(question);
  if (request.size() > kMostRequest)
    throw Unsupported("a launch with more than 4096 bytes of arguments");
  ::send(kSocket, request.data(), request.size(), 0);
  const Message answer = receive();
  if (answer.ended != Ended::kReturned) throw_again(answer);
  return {static_cast<int>(answer.integers[0]), reinterpret_cast<void*>(answer.integers[1])};
}

Message answer_to(const std::string& request) {
  Message message{};
  message.kind = Kind::kCallbackResult;
  try {
    const simt::Answer answer = simt::answer(request);
    message.integers[0] = answer.error;
    message.integers[1] = reinterpret_cast<std::int64_t>(answer.memory);
  } catch (...) {
    put_exception(message);
  }
  return message;
}

}  // namespace

bool parts_from_host_code() {
  if (!kIsSandboxed) return false;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) _exit(7);
  signal(SIGPIPE, SIG_IGN);
  host_code = fork();
  if (host_code < 0) _exit(7);
  const bool is_host_code = host_code == 0;
  if (is_host_code) {
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    simt::ask_elsewhere(ask_runner);
  }
  const int place = is_host_code ? kSocket : kHostCode, end = pair[is_host_code];
  const int moved = fcntl(end, F_DUPFD, 10);
  close(pair[0]), close(pair[1]);
  dup2(moved, place);
  close(moved);
  return is_host_code;
}

void serve_host_code(std::uintptr_t library_begin) {
  Message hello{};
  hello.device_bytes = library_begin;
  send(hello);
  for (;;) {
    const Message call = receive();
    choose_library(call.library);
    Message answer{};
    answer.kind = Kind::kDone;
    try {
      run_host_code(call, answer);
    } catch (...) {
      put_exception(answer);
    }
    answer_with(answer);
  }
}

// A launch names functions by their addresses.
void meet_host_code(std::uintptr_t library_begin) {
  if (!kIsSandboxed) return;
  Message hello;
  take(&hello, sizeof hello);
  if (hello.device_bytes != library_begin) _exit(7);
}

void call_host_code(const Message& call, Message& done) {
  if (!kIsSandboxed) return run_host_code(call, done);
  give(call);
  for (;;) {
    Message said;
    take(&said, sizeof said);
    said.text[kMostText - 1] = 0;
    if (said.kind == Kind::kWhere) {  // it crashes
      said.counted = static_cast<std::uint64_t>(getpid());
      send(said);
    } else if (said.kind == Kind::kCallback) {
      std::string request(said.bytes <= kMostRequest ? said.bytes : 0, '\0');
      take(request.data(), request.size());
      give(answer_to(request));
    } else if (said.ended != Ended::kReturned) {
      throw_again(said);
    } else {
      std::copy_n(said.integers, 4, done.integers);
      return set_text(done, said.text);
    }
  }
}

}  // namespace flash::grading
