// Implements remote.hpp: starts runners, passes them memory, and believes nothing that they say.
#include "grading/judge/remote.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "common/error.hpp"
#include "grading/judge/timed.hpp"

namespace flash::grading {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kGuard = 4096;  // bytes before and behind each tensor
constexpr std::size_t kPage = 4096;
constexpr std::size_t kAllocation = 256;        // what an allocation of device memory is aligned to
constexpr std::size_t kOutputKept = 4096;       // bytes of what a runner prints
constexpr std::size_t kNoise = 256 * 1024;      // what malloc may hold in reserve
constexpr int kInfrastructure = 70;             // exit code: not the student's fault
constexpr rlim_t kMemory = rlim_t{3} << 30;     // of one runner
constexpr rlim_t kReserved = rlim_t{68} << 30;  // of address space, by the emulator; most is empty
constexpr rlim_t kStack = rlim_t{1} << 20;      // a large array there is memory too
constexpr rlim_t kProcessorSeconds = 600;       // of one runner, which serves many cases

[[noreturn]] void broken(const std::string& what) {
  throw std::logic_error("the judge: " + what + " failed: " + strerror(errno));
}

double seconds_a_call() {
  const char* const given = getenv("FLASH_CALL_SECONDS");
  return given == nullptr ? 20 : std::max(0.1, atof(given));
}

// An endless loop is rarely alone: after these the rest is not run.
constexpr int kMostTimeouts = 3;
int timeouts = 0;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Shared memory that nobody can make longer or shorter: behind its end there is nothing.
class Shared {
 public:
  explicit Shared(std::size_t bytes)
      : bytes_((bytes + kPage - 1) / kPage * kPage),
        fd_(memfd_create("call", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (fd_.get() < 0 || ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0) broken("memfd");
    if (fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
      broken("sealing");
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (data_ == MAP_FAILED) broken("mmap");
  }
  ~Shared() { munmap(data_, bytes_); }
  Shared(const Shared&) = delete;
  unsigned char* data() const { return static_cast<unsigned char*>(data_); }
  std::size_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }

 private:
  std::size_t bytes_;
  Descriptor fd_;
  void* data_ = nullptr;
};

// The command that starts a runner, one word a line, from whoever starts the judge.
std::vector<std::string> runner_command() {
  const char* const given = getenv("FLASH_RUNNER");
  if (given == nullptr) throw std::logic_error("the judge: FLASH_RUNNER names no runner");
  std::vector<std::string> words;
  std::istringstream lines(given);
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  return words;
}

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

class Runner {
 public:
  explicit Runner(bool emulates, const std::vector<std::string>& words = runner_command()) {
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
    if (pid_ == 0) become(argv.data(), theirs.get(), their_output.get(), emulates);
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
  ~Runner() { end(); }
  Runner(const Runner&) = delete;

  void send(const Message& message, int fd = -1) {
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

  Message receive(double seconds) {
    const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
    for (;;) {
      const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
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

  [[noreturn]] void lied() {
    end();
    throw KernelError(
        "The process that runs your code answered what it was not asked: memory of the grader was "
        "overwritten.");
  }

  pid_t pid() const { return inner_pid_; }  // of the process that holds the student's code

  // Of the kernel, in bytes: memory of the process now, and the most that it ever had.
  std::pair<std::size_t, std::size_t> memory() const {
    std::ifstream status("/proc/" + std::to_string(inner_pid_) + "/status");
    std::size_t size = 0, peak = 0;
    for (std::string line; std::getline(status, line);) {
      if (line.rfind("VmSize:", 0) == 0) size = std::stoull(line.substr(7)) * 1024;
      if (line.rfind("VmPeak:", 0) == 0) peak = std::stoull(line.substr(7)) * 1024;
    }
    if (size == 0 || peak == 0) throw std::logic_error("the judge: no memory in /proc of a runner");
    return {size, peak};
  }

 private:
  static constexpr double kStartSeconds = 30;

  [[noreturn]] static void become(char** argv, int socket, int output, bool emulates) {
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
    limit(RLIMIT_AS, emulates ? kMemory + kReserved : kMemory);
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

  Message received() {
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

  void drain() {
    char block[65536];
    const ssize_t got = read(output_.get(), block, sizeof block);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) printing_ = false;
    if (got > 0 && printed_.size() < kOutputKept)
      printed_.append(block, std::min<std::size_t>(got, kOutputKept - printed_.size()));
  }

  [[noreturn]] void crashed() {
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
  int end(bool is_ending = false) {
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

  Descriptor socket_, output_, inner_;
  pid_t pid_ = -1, inner_pid_ = 0;
  bool printing_ = true;
  std::string printed_;
};

std::unique_ptr<Runner> the_runner;
const unsigned char *hidden_begin = nullptr, *hidden_end = nullptr;
bool memory_is_measured = false;
std::size_t last_measured = 0;

// Unpredictable bytes: what lies around and in outputs is not to be guessed.
std::uint64_t random_bits() {
  std::uint64_t bits;
  if (getrandom(&bits, sizeof bits, 0) != sizeof bits) broken("getrandom");
  return bits;
}

// How a call's memory looks before it: NaN of a random kind, or random finite numbers.
void fill(unsigned char* data, std::size_t bytes, bool with_nan) {
  std::uint64_t state = random_bits() | 1;
  for (std::size_t at = 0; at < bytes; at += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    std::uint64_t word = state;
    // Of two floats, or of one double (whose upper half decides): a quiet NaN, or near 1.
    const std::uint64_t exponents = with_nan ? 0x7ff800007ff80000u : 0x3f8000003f800000u;
    word = (word & 0x0007ffff0007ffffu) | exponents;
    memcpy(data + at, &word, std::min<std::size_t>(8, bytes - at));
  }
}

std::size_t span_of(const Argument& of) {  // bytes from the first element to behind the last
  std::int64_t last = 0;
  for (int axis = 0; axis < of.rank; ++axis) {
    if (of.shape[axis] == 0) return 0;
    if (of.strides[axis] < 0) throw std::logic_error("the judge: a negative stride");
    last += (of.shape[axis] - 1) * of.strides[axis];
  }
  return static_cast<std::size_t>(last + 1) * of.element;
}

template <class Use>
void for_each_element(const Argument& of, Use use) {  // use(offset in bytes)
  if (span_of(of) == 0) return;
  std::int64_t index[4] = {};
  for (;;) {
    std::int64_t place = 0;
    for (int axis = 0; axis < of.rank; ++axis) place += index[axis] * of.strides[axis];
    use(static_cast<std::size_t>(place) * of.element);
    int axis = of.rank - 1;
    while (axis >= 0 && ++index[axis] == of.shape[axis]) index[axis--] = 0;
    if (axis < 0) return;
  }
}

bool is_hidden(const Argument& of) {
  const auto* const data = static_cast<const unsigned char*>(of.data);
  return hidden_begin != nullptr && data < hidden_end && data + span_of(of) > hidden_begin;
}

// The memory of one call: each tensor between guards; one that is partly hidden comes last, and the
// memory ends where it begins to be hidden.
struct Layout {
  std::vector<Placed> placed;
  std::vector<std::size_t> there;  // bytes of each tensor that are in the memory
  std::size_t bytes = 0;           // of the memory
  std::size_t behind = 1 << 20;    // bytes that are mapped behind its end: a touch is a crash

  explicit Layout(const Call& call) : placed(call.arguments.size()), there(call.arguments.size()) {
    bytes = kGuard;
    int last = -1;
    for (std::size_t n = 0; n < call.arguments.size(); ++n) {
      if (is_hidden(call.arguments[n]))
        last = static_cast<int>(n);
      else
        place(call.arguments[n], n, span_of(call.arguments[n]), true, call.on_device);
    }
    if (last < 0) return;
    // So that the first hidden byte begins a page.
    const Argument& hidden = call.arguments[last];
    const std::size_t seen =
        static_cast<std::size_t>(hidden_begin - static_cast<const unsigned char*>(hidden.data));
    bytes = (bytes + seen + kPage - 1) / kPage * kPage - seen;
    place(hidden, last, seen, false, false);
    behind += span_of(hidden);
  }

 private:
  void place(const Argument& of, std::size_t n, std::size_t length, bool guarded, bool on_device) {
    if (on_device) {  // an allocation of its own, in which the tensor is aligned as it is here
      placed[n].begin = bytes = (bytes + kAllocation - 1) / kAllocation * kAllocation;
      bytes += kGuard + reinterpret_cast<std::uintptr_t>(of.data) % kAllocation;
      placed[n].bytes = bytes - placed[n].begin + length + kGuard;
    }
    placed[n].element = of.element;
    placed[n].offset = bytes;
    std::copy(of.shape, of.shape + 4, placed[n].shape);
    std::copy(of.strides, of.strides + 4, placed[n].strides);
    there[n] = length;
    bytes += length;
    if (guarded) bytes = (bytes + kGuard + 63) / 64 * 64;
  }
};

[[noreturn]] void rethrow(const Message& done, const std::exception_ptr& from_callback) {
  const std::string text = done.text;
  switch (done.ended) {
    case Ended::kNotYetImplemented: throw NotYetImplemented(text);
    case Ended::kShapeError: throw ShapeError(text);
    case Ended::kArgumentError: throw ArgumentError(text);
    case Ended::kUnsupported: throw Unsupported(text);
    case Ended::kOutOfMemory: throw OutOfMemory(text);
    case Ended::kKernelError: throw KernelError(text);
    case Ended::kCudaError:
    case Ended::kRuntimeError:
      // What a case threw in a callback comes out as it was; student code cannot make one up.
      if (from_callback) {
        try {
          std::rethrow_exception(from_callback);
        } catch (const std::exception& original) {
          if (original.what() == text) throw;
        }
      }
      throw Error(text);
    default: throw Error(text);
  }
}

Message message_of(const Call& call, const Shared& memory, const Layout& layout) {
  Message message{};
  message.kind = Kind::kMap;
  message.function = call.function;
  message.bytes = memory.bytes() + layout.behind;
  message.views = static_cast<std::uint32_t>(layout.placed.size());
  std::copy(layout.placed.begin(), layout.placed.end(), message.placed);
  std::copy(call.integers.begin(), call.integers.end(), message.integers);
  std::copy(call.numbers.begin(), call.numbers.end(), message.numbers);
  return message;
}

Message ask(Runner& runner, const Call& call, const Shared& memory, const Layout& layout,
            std::size_t* extra) {
  Message message = message_of(call, memory, layout);
  const double seconds = seconds_a_call();
  runner.send(message, memory.fd());
  if (runner.receive(seconds).kind != Kind::kMapped) runner.lied();
  const auto before = extra ? runner.memory() : std::pair<std::size_t, std::size_t>();
  message = Message{};
  message.kind = Kind::kCall;
  runner.send(message);
  std::exception_ptr thrown;
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
    const Message answer = runner.receive(std::max(left, 0.001));
    if (answer.kind == Kind::kCallback && call.on_callback && answer.function < kCallbacks) {
      Message result{};
      result.kind = Kind::kCallbackResult;
      thrown = nullptr;
      const auto failed = [&](Ended how, const std::exception& error) {
        result.ended = how;
        thrown = std::current_exception();
        std::snprintf(result.text, kMostText, "%s", error.what());
      };
      try {
        result.numbers[0] = call.on_callback(static_cast<Callback>(answer.function));
      } catch (const OutOfMemory& error) {
        failed(Ended::kOutOfMemory, error);
      } catch (const Unsupported& error) {
        failed(Ended::kUnsupported, error);
      } catch (const CudaError& error) {
        failed(Ended::kCudaError, error);
      } catch (const std::exception& error) {
        failed(Ended::kRuntimeError, error);
      }
      runner.send(result);
      continue;
    }
    if (answer.kind != Kind::kDone) runner.lied();
    if (extra) {
      const std::size_t by_kernel = runner.memory().second - std::max(before.first, before.second);
      const std::size_t by_meter = answer.bytes;
      // Their meter is exact, and student code can reach it; the kernel's is neither.
      *extra = by_kernel > by_meter + kNoise ? by_kernel : by_meter;
    }
    if (answer.ended != Ended::kReturned) rethrow(answer, thrown);
    return answer;
  }
}

struct Outcome {
  Message answer;
  std::vector<unsigned char> memory;  // a copy: the runner may still change what it shares
};

// One call, and what it did to the memory around its tensors.
Outcome run_once(Runner& runner, const Call& call, const Layout& layout, bool with_nan,
                 std::size_t* extra = nullptr) {
  const Shared memory(layout.bytes);
  fill(memory.data(), memory.bytes(), with_nan);
  for (std::size_t n = 0; n < call.arguments.size(); ++n) {
    const Argument& of = call.arguments[n];
    // The second call finds other values where it has to write.
    if (of.output && !with_nan) continue;
    unsigned char* const to = memory.data() + layout.placed[n].offset;
    for_each_element(of, [&](std::size_t at) {
      if (at + of.element <= layout.there[n])
        memcpy(to + at, static_cast<const unsigned char*>(of.data) + at, of.element);
    });
  }
  const std::vector<unsigned char> before(memory.data(), memory.data() + memory.bytes());
  const Message answer = ask(runner, call, memory, layout, extra);
  std::vector<unsigned char> after(memory.data(), memory.data() + memory.bytes());

  std::vector<unsigned char> expected = before;  // but for the elements of outputs
  for (std::size_t n = 0; n < call.arguments.size(); ++n) {
    const Argument& of = call.arguments[n];
    const std::size_t begin = layout.placed[n].offset;
    if (!of.output && !std::equal(before.begin() + begin, before.begin() + begin + layout.there[n],
                                  after.begin() + begin))
      throw KernelError("It changes `" + std::string(of.name) +
                        "`, or writes between its elements. Inputs must stay as they are.");
    if (of.output)
      for_each_element(of, [&](std::size_t at) {
        std::copy_n(after.begin() + begin + at, of.element, expected.begin() + begin + at);
      });
  }
  for (std::size_t at = 0; at < after.size(); ++at) {
    if (after[at] == expected[at]) continue;
    std::size_t nearest = 0, distance = static_cast<std::size_t>(-1);
    bool behind = false;
    for (std::size_t n = 0; n < call.arguments.size(); ++n) {
      const std::size_t begin = layout.placed[n].offset, end = begin + layout.there[n];
      const std::size_t away = at < begin ? begin - at : at >= end ? at - end : 0;
      if (away < distance) nearest = n, distance = away, behind = at >= end;
    }
    const Argument& of = call.arguments[nearest];
    const std::size_t bytes = behind ? distance + 1 : distance;  // up to the far end of this one
    const std::string elements = std::to_string((bytes + of.element - 1) / of.element);
    throw KernelError("It writes outside of `" + std::string(of.name) + "`: " +
                      (at >= layout.placed[nearest].offset && !behind
                           ? "between its elements."
                           : elements + (behind ? " elements behind its last element."
                                                : " elements before its first element.")));
  }
  return {answer, std::move(after)};
}

Runner& runner_for(const Call& call) {
  if (!the_runner) the_runner = std::make_unique<Runner>(call.on_device);
  return *the_runner;
}

}  // namespace

void hide_from_runner(const void* begin, const void* end) {
  hidden_begin = static_cast<const unsigned char*>(begin);
  hidden_end = static_cast<const unsigned char*>(end);
}

void measure_memory() { memory_is_measured = true; }
std::size_t measured_memory() {
  memory_is_measured = false;
  return last_measured;
}

Message remote_call(const Call& call) {
  if (timeouts >= kMostTimeouts)
    throw KernelError("Not run, because " + std::to_string(timeouts) +
                      " calls before it took too long.");
  try {
    const Layout layout(call);
    if (memory_is_measured) {
      Runner fresh(call.on_device);  // what an earlier call kept does not count as nothing
      (void)run_once(fresh, call, layout, true, &last_measured);
    }
    const Outcome first = run_once(runner_for(call), call, layout, true);
    if (call.arguments.empty()) return first.answer;
    const bool again = !call.on_device;
    const Outcome second = again ? run_once(runner_for(call), call, layout, false) : Outcome();
    for (std::size_t n = 0; n < call.arguments.size(); ++n) {
      const Argument& of = call.arguments[n];
      if (!of.output) continue;
      const std::size_t begin = layout.placed[n].offset;
      auto* const to = static_cast<unsigned char*>(of.data);
      bool same = true;
      for_each_element(of, [&](std::size_t at) {
        const unsigned char* const got = first.memory.data() + begin + at;
        const bool written = memcmp(to + at, got, of.element) != 0;
        if (written && again)
          same &= memcmp(got, second.memory.data() + begin + at, of.element) == 0;
        memcpy(to + at, got, of.element);
      });
      if (!same)
        throw KernelError("Two calls with the same inputs give two results in `" +
                          std::string(of.name) +
                          "`: it uses memory that nobody wrote, or what an earlier call left.");
    }
    return first.answer;
  } catch (const KernelError&) {
    the_runner.reset();  // the next call gets a new one
    throw;
  }
}

// ---- timed.hpp ----------------------------------------------------------------------------------

struct TimedRunner::Inside {
  Runner runner;
  double seconds;

  Inside(const std::vector<std::string>& command, double most) : runner(false, command), seconds(most) {}

  // Returns when the kernel has stopped the process, so that it does nothing from here on.
  void stop() {
    kill(runner.pid(), SIGSTOP);
    const auto deadline = Clock::now() + std::chrono::seconds(5);
    while (Clock::now() < deadline) {
      std::ifstream stat("/proc/" + std::to_string(runner.pid()) + "/stat");
      std::string text;
      std::getline(stat, text);
      const auto state = text.rfind(") ");  // behind the program's name, which may hold anything
      if (state == std::string::npos || text[state + 2] == 'Z') return;  // it ended: receive() says
      if (text[state + 2] == 'T') return;
    }
    throw std::logic_error("the judge: a runner's process cannot be stopped");
  }
  void go_on() const { kill(runner.pid(), SIGCONT); }

  double processor_ms() const {
    clockid_t clock;
    timespec now{};
    if (clock_getcpuclockid(runner.pid(), &clock) != 0 || clock_gettime(clock, &now) != 0) return 0;
    return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
  }
};

TimedRunner::TimedRunner(std::vector<std::string> command, double seconds)
    : inside_(std::make_unique<Inside>(command, seconds)) {}
TimedRunner::~TimedRunner() = default;
TimedRunner::TimedRunner(TimedRunner&&) noexcept = default;

Timed TimedRunner::call(const Call& call, const std::function<void(void*, std::size_t)>& evict) {
  Runner& runner = inside_->runner;
  const Layout layout(call);
  const Shared memory(layout.bytes);
  fill(memory.data(), memory.bytes(), true);
  Message message = message_of(call, memory, layout);
  inside_->go_on();
  runner.send(message, memory.fd());
  if (runner.receive(inside_->seconds).kind != Kind::kMapped) runner.lied();
  inside_->stop();

  for (std::size_t n = 0; n < call.arguments.size(); ++n) {
    const Argument& of = call.arguments[n];
    if (of.output) continue;
    for_each_element(of, [&](std::size_t at) {
      memcpy(memory.data() + layout.placed[n].offset + at,
             static_cast<const unsigned char*>(of.data) + at, of.element);
    });
  }
  std::vector<unsigned char> expected(memory.data(), memory.data() + memory.bytes());
  message = Message{};
  message.kind = Kind::kCall;
  runner.send(message);  // it lies there until the process may run
  evict(memory.data(), memory.bytes());

  const double processor_before = inside_->processor_ms();
  const auto begin = Clock::now();
  inside_->go_on();
  const Message answer = runner.receive(inside_->seconds);
  const auto end = Clock::now();
  inside_->stop();
  Timed timed{.wall_ms = std::chrono::duration<double, std::milli>(end - begin).count(),
              .processor_ms = inside_->processor_ms() - processor_before,
              .extra_bytes = answer.bytes};
  if (answer.kind != Kind::kDone) runner.lied();
  if (answer.ended != Ended::kReturned) rethrow(answer, nullptr);

  for (std::size_t n = 0; n < call.arguments.size(); ++n) {
    const Argument& of = call.arguments[n];
    if (!of.output) continue;
    const unsigned char* const got = memory.data() + layout.placed[n].offset;
    for_each_element(of, [&](std::size_t at) {
      memcpy(static_cast<unsigned char*>(of.data) + at, got + at, of.element);
      memcpy(expected.data() + layout.placed[n].offset + at, got + at, of.element);
    });
  }
  if (memcmp(expected.data(), memory.data(), memory.bytes()) != 0)
    throw KernelError("It changes an input, or writes outside of its outputs.");
  return timed;
}

}  // namespace flash::grading
