// Implements process.hpp.
#include "harness/judge/process.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "common/error.hpp"

namespace flash::grading {

int timeouts = 0;

void broken(const std::string& what) {
  throw std::logic_error("the judge: " + what + " failed: " + strerror(errno));
}

namespace {

constexpr double kStartSeconds = 30;
constexpr std::size_t kOutputKept = 4096;       // bytes of what a runner prints
constexpr int kInfrastructure = 70;             // exit code: not the student's fault
constexpr rlim_t kMemory = rlim_t{3} << 30;     // of one runner
constexpr rlim_t kReserved = rlim_t{68} << 30;  // of address space, by the emulator; most is empty
constexpr rlim_t kStack = rlim_t{1} << 20;      // a large array there is memory too
constexpr rlim_t kProcessorSeconds = 600;       // of one runner, which serves many cases

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    const char* const hint =
        signal == SIGSEGV   ? " (an index or a pointer outside of its memory)"
        : signal == SIGBUS  ? " (memory that is not there: it reads what it must not need)"
        : signal == SIGABRT ? " (an assert, a corrupted heap, or an exception that nothing caught)"
        : signal == SIGFPE  ? " (an integer division by zero)"
        : signal == SIGSYS  ? " (a system call that the grader does not allow)"
        : signal == SIGXCPU || signal == SIGKILL ? " (killed: too much time or memory)"
                                                 : "";
    return "crashed with signal " + std::to_string(signal) + hint;
  }
  const int code = WEXITSTATUS(status);
  if (code > 128) return how_it_ended(code - 128);  // bubblewrap tells of a signal so
  return "ended by itself with exit code " + std::to_string(code) + ": something called exit()";
}

}  // namespace

Runner::Runner(Kernels kernels, const std::vector<std::string>& words) {
  int pair[2], output[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0 ||
      pipe2(output, O_CLOEXEC | O_NONBLOCK) != 0)
    broken("a socket");
  socket_ = Descriptor(pair[0]);
  output_ = Descriptor(output[0]);
  Descriptor theirs(pair[1]), their_output(output[1]);
  const int credentials = 1;
  setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &credentials, sizeof credentials);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) broken("fork");
  if (pid_ == 0) become(argv.data(), theirs.get(), their_output.get(), kernels);
  theirs = Descriptor();  // so that the end of the runner is seen
  their_output = Descriptor();
  // Up to here no student code has run: whatever goes wrong is the grader's, or the machine's.
  try {
    if (receive(kStartSeconds).kind == Kind::kReady) return;
  } catch (const KernelError&) {
  }
  std::fprintf(stderr, "the runner does not start: %s\n", printed_.c_str());
  std::_Exit(kInfrastructure);
}

void Runner::send(const Message& message, int fd) {
  iovec part{const_cast<Message*>(&message), sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(item), &fd, sizeof fd);
  }
  if (sendmsg(socket_.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) !=
      static_cast<ssize_t>(sizeof message))
    crashed();
}

Message Runner::receive(double seconds) {
  const auto deadline = SteadyClock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const double left = std::chrono::duration<double>(deadline - SteadyClock::now()).count();
    if (left <= 0) {
      end();
      ++timeouts;
      char text[64];
      std::snprintf(text, sizeof text, "It took longer than %g s.", seconds);
      throw KernelError(text);
    }
    pollfd wait[2] = {{socket_.get(), POLLIN, 0}, {output_.get(), POLLIN, 0}};
    if (poll(wait, printing_ ? 2 : 1, static_cast<int>(left * 1000) + 1) < 0 && errno != EINTR)
      broken("poll");
    if (printing_ && wait[1].revents != 0) drain();
    if (wait[0].revents == 0) continue;
    return received();
  }
}

void Runner::lied() {
  end();
  throw KernelError(
      "The process that runs your code answered what it was not asked: memory of the grader was "
      "overwritten.");
}

std::pair<std::size_t, std::size_t> Runner::memory() const {
  std::ifstream status("/proc/" + std::to_string(inner_pid_) + "/status");
  std::size_t size = 0, peak = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmSize:", 0) == 0) size = std::stoull(line.substr(7)) * 1024;
    if (line.rfind("VmPeak:", 0) == 0) peak = std::stoull(line.substr(7)) * 1024;
  }
  if (size == 0 || peak == 0) throw std::logic_error("the judge: no memory in /proc of a runner");
  return {size, peak};
}

void Runner::become(char** argv, int socket, int output, Kernels kernels) {
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY);
  // First out of the way of 0 to 3, then to their places; dup2 clears close-on-exec.
  const int moved = fcntl(socket, F_DUPFD, 10);
  fcntl(output, F_SETFL, 0);
  dup2(nothing, 0);
  dup2(output, 1);
  dup2(output, 2);
  dup2(moved, kSocket);
  for (int fd = kSocket + 1; fd < 256; ++fd) close(fd);
  const auto limit = [](auto what, rlim_t most) {
    const rlimit both{most, most};
    setrlimit(what, &both);
  };
  limit(RLIMIT_CORE, 0);
  // A GPU's driver reserves address space for the memory of all devices.
  if (kernels != Kernels::kOnGpu)
    limit(RLIMIT_AS, kernels == Kernels::kEmulated ? kMemory + kReserved : kMemory);
  limit(RLIMIT_DATA, kMemory);  // what can be written to
  limit(RLIMIT_STACK, kStack);
  limit(RLIMIT_CPU, kProcessorSeconds);
  limit(RLIMIT_FSIZE, 1 << 16);
  limit(RLIMIT_NOFILE, 64);
  limit(RLIMIT_MEMLOCK, 0);
  // Nothing of the judge's environment: not the path of its report, not its seed.
  char* const environment[] = {const_cast<char*>("LC_ALL=C"), nullptr};
  execve(argv[0], argv, environment);
  _exit(127);
}

Message Runner::received() {
  Message message;
  iovec part{&message, sizeof message};
  alignas(cmsghdr) char control[256] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) crashed();
  pid_t sender = 0;
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level != SOL_SOCKET) continue;
    if (item->cmsg_type == SCM_CREDENTIALS) {
      ucred who;
      memcpy(&who, CMSG_DATA(item), sizeof who);
      sender = who.pid;
    } else if (item->cmsg_type == SCM_RIGHTS) {  // nothing was asked for
      int fd;
      memcpy(&fd, CMSG_DATA(item), sizeof fd);
      close(fd);
      lied();
    }
  }
  if (got != static_cast<ssize_t>(sizeof message)) lied();
  if (inner_pid_ == 0) {  // of kReady, which comes before student code
    inner_pid_ = sender;
    inner_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, sender, 0)));
  }
  if (sender != inner_pid_) lied();
  message.text[kMostText - 1] = 0;
  return message;
}

void Runner::drain() {
  char block[65536];
  const ssize_t got = read(output_.get(), block, sizeof block);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) printing_ = false;
  if (got > 0 && printed_.size() < kOutputKept)
    printed_.append(block, std::min<std::size_t>(got, kOutputKept - printed_.size()));
}

void Runner::crashed() {
  for (int n = 0; n < 8 && printing_; ++n) drain();
  const int status = end(true);
  std::string clue;  // what the C++ runtime said
  for (const char* sign : {"what():", "terminate called", "Assertion ", "free(): ", "malloc"}) {
    const auto begin = printed_.find(sign);
    if (begin == std::string::npos) continue;
    clue = "\n" + printed_.substr(begin, printed_.find('\n', begin) - begin);
    break;
  }
  throw KernelError("The process that ran your code " + how_it_ended(status) + "." + clue);
}

// Ends the process with all that belongs to it; how it ended. One that is ending gets a moment,
// so that its own signal is seen.
int Runner::end(bool is_ending) {
  if (pid_ <= 0) return 0;
  int status = 0;
  bool ended = false;
  for (int n = 0; is_ending && n < 200 && !ended; ++n) {
    ended = waitpid(pid_, &status, WNOHANG) == pid_;
    if (!ended) usleep(1000);
  }
  // Once in some hundred runs bubblewrap's --die-with-parent left the inner process alone, in the
  // student's endless loop; so that one is ended itself. A pidfd never means another process.
  if (inner_.get() >= 0) syscall(SYS_pidfd_send_signal, inner_.get(), SIGKILL, nullptr, 0);
  kill(-pid_, SIGKILL);
  if (!ended) waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

}  // namespace flash::grading
