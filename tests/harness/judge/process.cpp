// Implements process.hpp: for POSIX, and what Linux has beyond it where it is there.
#include "harness/judge/process.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <stdexcept>

#ifdef __linux__
#include <filesystem>
#endif

namespace flash::grading {

void broken(const std::string& what) {
  throw std::logic_error("the judge: " + what + " failed: " + strerror(errno));
}

namespace {

constexpr double kStartSeconds = 60;               // a GPU can take long to start
constexpr std::size_t kOutputKept = 64 * 1024;     // bytes of what a runner prints, at either end
constexpr int kInfrastructure = 70;                // exit code: not the student's fault
constexpr int kSamples = 20;                       // one would name the line of an inner loop
constexpr std::size_t kMostWhere = 40 * kSamples;  // a process can say much

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    const char* const hint =
        signal == SIGSEGV   ? " (segmentation fault: an index or a pointer outside of its memory)"
        : signal == SIGBUS  ? " (bus error: memory that is not there: it reads what it must not "
                              "need)"
        : signal == SIGABRT ? " (aborted: an assert, a corrupted heap, or an exception that "
                              "nothing caught)"
        : signal == SIGFPE  ? " (arithmetic error: an integer division by zero)"
        : signal == SIGILL  ? " (illegal instruction: often the end of a function that returns "
                              "nothing)"
        : signal == SIGSYS  ? " (a system call that the grader does not allow)"
        : signal == SIGXCPU || signal == SIGKILL ? " (killed: too much time or memory)"
                                                 : "";
    return "crashed with signal " + std::to_string(signal) + hint;
  }
  const int code = WEXITSTATUS(status);
  if (code > 128 && code < 160) return how_it_ended(code - 128);  // bubblewrap tells of a signal so
  return "ended early with exit code " + std::to_string(code) + ": something called exit()";
}

// The line in which a sanitizer, the C++ runtime or the C library says what happened.
std::string clue_in(const std::string& printed) {
  const auto line_at = [&](std::size_t at) {
    return printed.substr(at, printed.find('\n', at) - at);
  };
  const std::string sanitizer = "ERROR: AddressSanitizer: ";
  if (const auto at = printed.find(sanitizer); at != std::string::npos) {
    const std::string line = line_at(at + sanitizer.size());
    std::string kind = line.substr(0, line.find(' '));
    // Around each tensor memory is poisoned.
    if (kind == "use-after-poison") kind = "an access before or after a tensor";
    for (const char* folder : {"/skeleton/", "/solution/"}) {
      const auto file = printed.find(folder, at);
      if (file == std::string::npos) continue;
      auto begin = printed.rfind(' ', file) + 1;
      for (auto slash = printed.rfind('/', file - 1); slash >= begin && slash != std::string::npos;
           slash = std::string::npos)
        begin = slash + 1;
      std::string place = printed.substr(begin, printed.find_first_of(" \n", file) - begin);
      // file:line, without the column
      const auto colon = place.find(':');
      const auto column = colon == std::string::npos ? colon : place.find(':', colon + 1);
      kind += " at " + place.substr(0, column);
      break;
    }
    return "AddressSanitizer: " + kind;
  }
  for (const char* sign :
       {"runtime error:", "what():", "terminate called", "Assertion ", "free(): ", "malloc",
        "host code follows a pointer", "the code of a .cu file"}) {
    const auto at = printed.find(sign);
    if (at == std::string::npos) continue;
    const auto before = printed.rfind('\n', at);
    std::string line = line_at(before == std::string::npos ? 0 : before + 1);
    for (const char* folder : {"/skeleton/", "/solution/"})  // of a file its path in the course
      if (const auto file = line.find(folder); file != std::string::npos && line[0] == '/')
        line.erase(0, line.rfind('/', file - 1) + 1);
    return line.substr(line.find_first_not_of(' '));
  }
  return "";
}

}  // namespace

Runner::Runner(const Command& command) : is_attended_(command.is_attended) {
  int pair[2], output[2];
#ifdef __linux__
  const int type = SOCK_SEQPACKET;  // keeps messages apart
#else
  const int type = SOCK_STREAM;
#endif
  if (socketpair(AF_UNIX, type, 0, pair) != 0 || pipe(output) != 0) broken("a socket");
  for (const int fd : {pair[0], pair[1], output[0], output[1]}) fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(output[0], F_SETFL, O_NONBLOCK);
  socket_ = Descriptor(pair[0]);
  output_ = Descriptor(output[0]);
  Descriptor theirs(pair[1]), their_output(output[1]);
#ifdef __linux__
  const int credentials = 1;
  setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &credentials, sizeof credentials);
#endif
  pid_ = fork();
  if (pid_ < 0) broken("fork");
  if (pid_ == 0) become(command, theirs.get(), their_output.get());
  // Theirs are closed here, so that the end of the runner is seen.
  if (is_attended_) signal(SIGINT, SIG_IGN);  // it is for the debugger
}

const Facts& Runner::facts() {
  if (facts_) return *facts_;
  // Up to here no student code has run: whatever goes wrong is the grader's, or the machine's.
  try {
    if (const auto first = receive_within(is_attended_ ? 1e6 : kStartSeconds);
        first && first->kind == Kind::kReady) {
      memory_before_ = memory();
      Message go{};
      go.kind = Kind::kReady;
      send(go);
      was_used_ = false;
      return facts_.emplace(facts_in(*first));
    }
  } catch (const RunnerEnded&) {
  }
  std::fprintf(stderr, "the runner does not start: %s\n", take_output().c_str());
  std::fflush(nullptr);
  std::_Exit(kInfrastructure);
}

void Runner::send(const Message& message, int fd) {
  was_used_ = true;
  if (message.kind == Kind::kMap) where_.clear();
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
#ifdef __linux__
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
#else
  constexpr int kFlags = 0;
#endif
  if (sendmsg(socket_.get(), &header, kFlags) != static_cast<ssize_t>(sizeof message)) crashed();
}

std::optional<Message> Runner::receive_within(double seconds) {
  const auto deadline = SteadyClock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const double left = std::chrono::duration<double>(deadline - SteadyClock::now()).count();
    if (left <= 0) return std::nullopt;
    pollfd wait[2] = {{socket_.get(), POLLIN, 0}, {output_.get(), POLLIN, 0}};
    const int most = static_cast<int>(std::min(left, 1e5) * 1000) + 1;
    if (poll(wait, printing_ ? 2 : 1, most) < 0 && errno != EINTR) broken("poll");
    if (printing_ && wait[1].revents != 0) drain();
    if (wait[0].revents == 0) continue;
    if (const auto message = received()) return message;
  }
}

bool Runner::says_something_within(int milliseconds) const {
  pollfd wait{socket_.get(), POLLIN, 0};
  return poll(&wait, 1, milliseconds) > 0;
}

Message Runner::receive(double seconds) {
  if (const auto message = receive_within(seconds)) return *message;
  end_because_of_time(seconds, "");
  std::abort();
}

void Runner::end_because_of_time(double seconds, const std::string& where) {
  for (int n = 0; n < 8 && printing_; ++n) drain();
  end();
  char text[64];
  std::snprintf(text, sizeof text, "It took longer than %g s", seconds);
  throw RunnerEnded(RunnerEnded::How::kTimedOut, text + (where.empty() ? "." : " " + where));
}

void Runner::lied() {
  end();
  throw RunnerEnded(RunnerEnded::How::kCrashed,
                    "The process that runs your code answered what it was not asked: memory of the "
                    "grader was overwritten.");
}

void Runner::ask_where() {
  where_.clear();
#ifdef __linux__
  std::map<std::uint64_t, int> busy;
  for (int n = 0; n < kSamples; ++n) {
    const std::string threads = "/proc/" + std::to_string(inner_pid_) + "/task";
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(threads, none)) {
      const pid_t thread = std::atoi(entry.path().filename().c_str());
      std::ifstream stat(entry.path() / "stat");
      std::string text;
      std::getline(stat, text);
      const auto state = text.rfind(") ");
      if (state != std::string::npos && text[state + 2] == 'R') ++busy[thread];
      syscall(SYS_tgkill, inner_pid_, thread, SIGUSR2);
    }
    if (receive_within(0.02)) break;  // it goes on, or lies: the caller sees the end of the call
  }
  for (const auto& [thread, times] : busy)
    if (times > busy[busiest_]) busiest_ = thread;
#endif
}

std::string Runner::take_output() {
  for (int n = 0; n < 64 && printing_; ++n) drain();
  std::string text = std::move(head_);
  if (left_out_ > 0) text += "\n... " + std::to_string(left_out_) + " bytes left out ...\n";
  text += tail_;
  head_.clear(), tail_.clear(), left_out_ = 0;
  return text;
}

double Runner::waited() const {
  std::ifstream file("/proc/" + std::to_string(inner_pid_) + "/schedstat");
  double ran_ns = 0, waited_ns = 0;
  file >> ran_ns >> waited_ns;
  return 1e-9 * waited_ns;
}

std::optional<Runner::Memory> Runner::memory() const {
  const std::string folder = "/proc/" + std::to_string(inner_pid_);
  std::ifstream status(folder + "/status"), maps(folder + "/maps");
  Memory found;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmSize:", 0) == 0) found.size = std::stoull(line.substr(7)) * 1024;
    if (line.rfind("VmPeak:", 0) == 0) found.peak = std::stoull(line.substr(7)) * 1024;
  }
  for (std::string line; std::getline(maps, line);) {  // "7f0000-7f1000 rw-p 00000000 00:00 0 path"
    std::size_t end = 0;
    const std::size_t begin = std::stoull(line, &end, 16);
    const std::size_t last = std::stoull(line.substr(end + 1), nullptr, 16);
    const auto rights = line.find(' ') + 1;
    const bool is_sent = line.find("/memfd:") != std::string::npos;
    if (is_sent || line[rights + 1] != 'w')
      found.files[line.substr(std::min(line.find('/'), line.size()))] += last - begin;
    else
      found.writable += last - begin;
  }
  if (found.size == 0 || found.peak == 0) {
#ifdef __linux__
    throw std::logic_error("the judge: no memory in /proc of a runner");
#endif
    return std::nullopt;
  }
  return found;
}

void Runner::become(const Command& command, int socket, int output) {
  // First out of the way of 0 to 3, then to their places; dup2 clears close-on-exec.
  const int moved = fcntl(socket, F_DUPFD, 10);
  if (!command.is_attended) {
    setpgid(0, 0);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, 0);
    dup2(output, 1);
    dup2(output, 2);
    const rlimit none{0, 0};  // crashes must not fill the disk
    setrlimit(RLIMIT_CORE, &none);
  }
  dup2(moved, kSocket);
  for (int fd = kSocket + 1; fd < 256; ++fd) close(fd);
  std::vector<char*> argv;
  for (const std::string& word : command.words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(127);
}

// Nothing where it was only a part of a message, or not for the caller.
std::optional<Message> Runner::received() {
  Message message;
  iovec part{&message, sizeof message};
  alignas(cmsghdr) char control[256] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t got = recvmsg(socket_.get(), &header, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (got <= 0) crashed();
  pid_t sender = pid_;
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item; item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level != SOL_SOCKET) continue;
#ifdef __linux__
    if (item->cmsg_type == SCM_CREDENTIALS) {
      ucred who;
      memcpy(&who, CMSG_DATA(item), sizeof who);
      sender = who.pid;
    }
#endif
    if (item->cmsg_type == SCM_RIGHTS) {  // nothing was asked for
      int fd;
      memcpy(&fd, CMSG_DATA(item), sizeof fd);
      close(fd);
      lied();
    }
  }
#ifndef __linux__
  // A stream of bytes.
  const auto* const bytes = reinterpret_cast<const char*>(&message);
  unread_.insert(unread_.end(), bytes, bytes + got);
  if (unread_.size() < sizeof message) return std::nullopt;
  memcpy(&message, unread_.data(), sizeof message);
  unread_.erase(unread_.begin(), unread_.begin() + sizeof message);
  got = sizeof message;
#endif
  if (got != static_cast<ssize_t>(sizeof message)) lied();
  if (inner_pid_ == 0) {  // of kReady, which comes before student code
    inner_pid_ = sender;
#ifdef __linux__
    inner_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, sender, 0)));
#endif
  }
  if (sender != inner_pid_) lied();
  if (message.kind == Kind::kWhere) {
    take_where(message);
    return std::nullopt;
  }
  message.text[kMostText - 1] = 0;
  return message;
}

void Runner::take_where(const Message& message) {
  if (where_.size() >= kMostWhere) return;
  Where where{message.counted,
              static_cast<std::uint64_t>(message.integers[0]),
              message.bytes,
              message.device_bytes,
              message.integers[1],
              message.integers[2] != 0,
              {}};
  where.addresses.resize(std::min<std::size_t>(message.views, kMostCalls));
  memcpy(where.addresses.data(), message.text, where.addresses.size() * sizeof(std::uint64_t));
  where_.push_back(std::move(where));
}

void Runner::drain() {
  char block[65536];
  const ssize_t got = read(output_.get(), block, sizeof block);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) printing_ = false;
  if (got <= 0) return;
  const std::size_t half = kOutputKept / 2;
  const std::size_t room = std::min<std::size_t>(got, half - head_.size());
  head_.append(block, room);
  tail_.append(block + room, static_cast<std::size_t>(got) - room);
  if (tail_.size() > half) {
    left_out_ += tail_.size() - half;
    tail_.erase(0, tail_.size() - half);
  }
}

void Runner::crashed() {
  const int status = end(true);
  if (is_attended_ && WIFEXITED(status) && WEXITSTATUS(status) == 0) _exit(0);  // gdb was quit
  for (int n = 0; n < 64 && printing_; ++n) drain();
  const std::string clue = clue_in(head_ + tail_);
  const std::int64_t stack = where_.empty() ? 0 : where_.back().stack;
  char of_stack[160];
  std::snprintf(of_stack, sizeof of_stack,
                "needs a stack of %.0f MB, which is more than there is: take a Tensor or a vector "
                "for large arrays, and end each recursion",
                static_cast<double>(stack) / 1e6);
  constexpr char kNotAligned[] =
      "crashed with a vector at an address that is not aligned to it (tensors are aligned to their "
      "elements only), or with a pointer that is no address,";
  throw RunnerEnded(RunnerEnded::How::kCrashed,
                    (stack > 0                                         ? of_stack
                     : !where_.empty() && where_.back().has_no_address ? kNotAligned
                                                                       : how_it_ended(status)) +
                        (clue.empty() ? "" : "\n" + clue));
}

// Ends the process with all that belongs to it; how it ended. One that is ending gets a moment,
// so that its own signal is seen.
int Runner::end(bool is_ending) {
  if (pid_ <= 0) return 0;
  // It stays a zombie until its group is killed: till then no other process has its number.
  for (int n = 0; is_ending && n < 200; ++n) {
    siginfo_t ended{};
    if (waitid(P_PID, pid_, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == pid_)
      break;
    usleep(1000);
  }
#ifdef __linux__
  // Once in some hundred runs bubblewrap's --die-with-parent left the inner process alone, in the
  // student's endless loop; so that one is ended itself. A pidfd never means another process.
  if (inner_.get() >= 0 && !is_attended_)
    syscall(SYS_pidfd_send_signal, inner_.get(), SIGKILL, nullptr, 0);
#endif
  if (is_attended_) {  // it ends with the socket, and who looks at it then goes
    socket_ = Descriptor();
  } else {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

}  // namespace flash::grading
