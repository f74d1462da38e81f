// main() of a runner: loads the student's library, and calls it when the judge says so.
//
// Nothing here is trusted: once the library is loaded, its code can change anything in this
// process.
#include "harness/runner/runner.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#include <ucontext.h>
extern "C" {  // AddressSanitizer's, where it is preloaded; else null
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* memory, std::size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* memory, std::size_t bytes);
}
#endif

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/memory_meter.hpp"
#include "harness/judge/ended.hpp"

namespace flash::grading {
namespace {

const char* paths[2];       // of the task's library, and of another task of the same author
std::uint32_t library = 0;  // of this call
std::uintptr_t library_begin = 0;
const void* call_memory = nullptr;
const char* stack_top = nullptr;  // of the main thread

// ---- Where the code is --------------------------------------------------------------------------

std::uintptr_t program_counter([[maybe_unused]] const void* context) {
#if defined(__linux__) && defined(__x86_64__)
  return static_cast<std::uintptr_t>(
      static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__linux__) && defined(__aarch64__)
  return static_cast<const ucontext_t*>(context)->uc_mcontext.pc;
#else
  return 0;
#endif
}

std::uintptr_t stack_pointer([[maybe_unused]] const void* context) {
#if defined(__linux__) && defined(__x86_64__)
  return static_cast<std::uintptr_t>(
      static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
#elif defined(__linux__) && defined(__aarch64__)
  return static_cast<const ucontext_t*>(context)->uc_mcontext.sp;
#else
  return 0;
#endif
}

// How large the stack is in which there was no room for `fault`; 0 where it is no address of it.
std::int64_t overflown_stack(std::uintptr_t fault, std::uintptr_t pointer) {
  constexpr std::uintptr_t kBelow = 64 * 1024;  // what a function may touch before it moves it
  const auto top = reinterpret_cast<std::uintptr_t>(stack_top);
  return pointer != 0 && pointer < top && fault + kBelow > pointer && fault < top
             ? static_cast<std::int64_t>(top - pointer)
             : 0;
}

// Without memory from the heap, which may be what is broken.
void send_where([[maybe_unused]] siginfo_t* info, [[maybe_unused]] const void* context) {
#if __has_include(<execinfo.h>)
  static Message message;
  message = Message{};
  message.kind = Kind::kWhere;
#ifdef __linux__
  message.counted = static_cast<std::uint64_t>(syscall(SYS_gettid));
  message.integers[2] = info->si_signo == SIGSEGV && info->si_code == SI_KERNEL;
#endif
  message.bytes = reinterpret_cast<std::uint64_t>(info->si_addr);
  message.device_bytes = reinterpret_cast<std::uint64_t>(call_memory);
  message.integers[0] = static_cast<std::int64_t>(library_begin);
#ifdef __linux__
  if (static_cast<pid_t>(message.counted) == getpid())
    message.integers[1] = overflown_stack(message.bytes, stack_pointer(context));
#endif
  void* calls[kMostCalls];
  const int count = backtrace(calls, kMostCalls);
  const std::uintptr_t pc = program_counter(context);
  int first = 0;  // the signal handler's own calls come before the interrupted instruction
  while (first < count && reinterpret_cast<std::uintptr_t>(calls[first]) != pc) ++first;
  std::uint64_t addresses[kMostCalls] = {pc + 1};
  std::uint32_t found = 1;
  for (int i = first + 1; i < count; ++i)
    addresses[found++] = reinterpret_cast<std::uint64_t>(calls[i]);
  message.views = found;
  memcpy(message.text, addresses, sizeof addresses);
  [[maybe_unused]] const ssize_t sent = ::send(kSocket, &message, sizeof message, 0);
#endif
}

void send_calls(const std::vector<void*>& calls) {
  if (calls.empty()) return;
  Message message{};
  message.kind = Kind::kWhere;
  message.integers[0] = static_cast<std::int64_t>(library_begin);
  message.views = static_cast<std::uint32_t>(calls.size());
  memcpy(message.text, calls.data(), calls.size() * sizeof(void*));
  send(message);
}

void on_question(int, siginfo_t* info, void* context) { send_where(info, context); }

void on_crash(int signal, siginfo_t* info, void* context) {
  send_where(info, context);
  raise(signal);  // SA_RESETHAND: it ends the process when this function has returned
}

// On a stack of their own: that of the code may be what is full.
void answer_signals(bool is_sanitized) {
#if __has_include(<execinfo.h>)
  void* call;
  backtrace(&call, 1);  // the first call loads a library
#endif
  constexpr std::size_t kBytes = 256 * 1024;
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = kBytes;
  if (memory != MAP_FAILED) sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  action.sa_sigaction = on_question;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
  if (is_sanitized) return;  // it says more
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    sigaction(signal, &action, nullptr);
}

// ---- Memory of a call ---------------------------------------------------------------------------

// Maps what the judge sent, with all its pages, so that a call that is timed finds them.
class Mapped {
 public:
  Mapped(const Message& call, int fd) : bytes_(call.bytes) {
#ifdef MAP_POPULATE
    constexpr int kNow = MAP_POPULATE;
#else
    constexpr int kNow = 0;
#endif
    constexpr int kAccess = PROT_READ | PROT_WRITE;
    if (call.apart == 0) {
      halves_[0] = mmap(nullptr, bytes_, kAccess, MAP_SHARED | kNow, fd, 0);
      // Inputs that are changed and put back would be no difference afterwards. In a class nothing
      // may be mapped over something else, so that the place is freed first.
      if (call.device_bytes > 0 && call.device_bytes <= bytes_ && halves_[0] != MAP_FAILED) {
        munmap(halves_[0], call.device_bytes);
        if (mmap(halves_[0], call.device_bytes, PROT_READ, MAP_SHARED | kNow, fd, 0) != halves_[0])
          _exit(5);
      }
    } else {  // far from all else, with nothing between the halves
      bytes_ = (bytes_ - kBehind) / 2;
      char* at = reinterpret_cast<char*>(std::uintptr_t{1} << 45);
      for (int n = 0; n < 2; ++n, at += call.apart) {
        halves_[n] =
            mmap(at, bytes_, kAccess, MAP_SHARED | kNow, fd, static_cast<off_t>(n * bytes_));
        if (halves_[n] != at) _exit(5);
      }
    }
    if (halves_[0] == MAP_FAILED) _exit(5);
  }
  ~Mapped() {
    for (void* const half : halves_)
      if (half != nullptr) munmap(half, bytes_);
  }
  Mapped(const Mapped&) = delete;

  void* data() const { return halves_[0]; }

 private:
  std::size_t bytes_;
  void* halves_[2] = {};
};

// AddressSanitizer, where it is there, reports accesses before and behind each tensor.
class Surroundings {
 public:
  Surroundings([[maybe_unused]] const Message& call, [[maybe_unused]] void* memory) {
#ifdef __linux__
    if (__asan_poison_memory_region == nullptr || call.kind != Kind::kMap || call.apart != 0 ||
        call.views == 0)
      return;
    struct Span {
      std::uint64_t begin, end;
    };
    std::vector<Span> spans;
    for (unsigned n = 0; n < call.views && n < kMostViews; ++n) {
      const Placed& placed = call.placed[n];
      std::int64_t last = 0;
      bool is_empty = false;
      for (int axis = 0; axis < 4; ++axis) {
        is_empty |= placed.shape[axis] == 0;
        last += (placed.shape[axis] - 1) * placed.strides[axis];
      }
      if (!is_empty) spans.push_back({placed.offset, placed.offset + (last + 1) * placed.element});
    }
    std::sort(spans.begin(), spans.end(),
              [](const Span& a, const Span& b) { return a.begin < b.begin; });
    auto* const bytes = static_cast<unsigned char*>(memory);
    std::uint64_t at = 0;
    for (const Span& span : spans) {
      if (span.begin > at) forbid(bytes + at, span.begin - at);
      at = std::max(at, span.end);
    }
    forbid(bytes + at, 4096);
#endif
  }
  ~Surroundings() {
#ifdef __linux__
    for (const auto& [begin, bytes] : forbidden_) __asan_unpoison_memory_region(begin, bytes);
#endif
  }

 private:
#ifdef __linux__
  void forbid(unsigned char* begin, std::uint64_t bytes) {
    __asan_poison_memory_region(begin, bytes);
    forbidden_.push_back({begin, bytes});
  }
#endif
  std::vector<std::pair<unsigned char*, std::uint64_t>> forbidden_;
};

void serve() {
  int fd = -1;
  const Message call = receive(&fd);
  const bool on_device = call.kind == Kind::kMapDevice;
  static std::unique_ptr<Mapped>
      mapped;  // until the next call: the judge looks whether it is there
  mapped.reset();
  if (!on_device) mapped = std::make_unique<Mapped>(call, fd);
  void* const memory = on_device ? mapped_on_device(fd, call.bytes) : mapped->data();
  if (fd >= 0) close(fd);
  Message answer{};
  answer.kind = Kind::kMapped;
  send(answer);
  (void)receive();
  answer = Message{};
  answer.kind = Kind::kDone;
  call_memory = memory;
  choose_library(call.library);
  try {
    const Surroundings surroundings(call, memory);
    answer.bytes = host_memory::extra_bytes_of(
        [&] { call.function == kNothing ? run_nothing() : run(call, memory, answer); });
  } catch (...) {
    put_exception(answer);
    if (answer.ended == Ended::kOther) send_calls(thrown_from());
  }
  answer_with(answer);  // and then the rest, which is no part of the call
}

}  // namespace

void send(const Message& message) {
  if (::send(kSocket, &message, sizeof message, 0) != static_cast<ssize_t>(sizeof message))
    _exit(3);
}

// The next message, and the descriptor that came with it.
Message receive(int* fd) {
  Message message;
  auto* const bytes = reinterpret_cast<char*>(&message);
  for (std::size_t got = 0; got < sizeof message;) {
    iovec part{bytes + got, sizeof message - got};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
#ifdef MSG_CMSG_CLOEXEC
    const ssize_t more = recvmsg(kSocket, &header, MSG_CMSG_CLOEXEC);
#else
    const ssize_t more = recvmsg(kSocket, &header, 0);
#endif
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) _exit(more == 0 ? 0 : 3);  // the judge has ended
    const cmsghdr* const item = CMSG_FIRSTHDR(&header);
    if (fd != nullptr && item != nullptr) memcpy(fd, CMSG_DATA(item), sizeof *fd);
    got += static_cast<std::size_t>(more);
  }
  return message;
}

void choose_library(std::uint32_t number) { library = number; }

void answer_with(const Message& message) {
  std::fflush(stdout);
  send(message);
}

const std::string& library_of_call() {
  static std::string of[2];
  if (library > 1 || paths[library] == nullptr)
    throw NoOtherTask("the other task's file is missing, or does not compile");
  of[library] = paths[library];
  return of[library];
}

void is_in_library(const void* something) {
  Dl_info info;
  if (dladdr(something, &info) != 0)
    library_begin = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
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
  if (argc != 2 && argc != 3) return 2;
  const char here = 0;
  stack_top = &here;
  // Line by line, also into a pipe: what was printed before a crash is then not lost.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
#ifdef __GLIBC__
  // So that what is allocated is seen by the kernel's count of this process too.
  mallopt(M_TOP_PAD, 0);
  mallopt(M_MMAP_THRESHOLD, 64 * 1024);
#endif
  for (int n = 0; n + 1 < argc; ++n) paths[n] = argv[n + 1];
  const int there = open(argv[1], O_RDONLY | O_CLOEXEC);
  if (there < 0) return 6;
  close(there);
  Facts facts;
  const Needs needs = prepared_for({argv + 1, argv + argc}, facts);
#ifdef __linux__
  facts.is_sanitized = __asan_poison_memory_region != nullptr;
#endif
  facts.is_sandboxed = kIsSandboxed;
  // A large array on the stack is memory, too. Sanitizers have larger frames.
  constexpr rlim_t kStack = rlim_t{1} << 20;
  const rlimit stack{kStack, kStack};
  if (!facts.is_sanitized) setrlimit(RLIMIT_STACK, &stack);
  answer_signals(facts.is_sanitized);
  // Before the library's own code runs: what the judge believes about this process, it has now.
  send(message_of(facts));
  (void)receive();  // it has looked at this process
  const bool is_host_code = parts_from_host_code();
  restrict_process(needs, facts);
  bool are_loaded = true;
  for (int n = 1; n < argc; ++n) {
    void* const loaded = dlopen(argv[n], RTLD_NOW | RTLD_LOCAL);
    are_loaded &= loaded != nullptr;
    if (n == 1 && loaded != nullptr) is_in_library(dlsym(loaded, "flash_task"));
  }
  // Why one does not load, says load_task(), which opens its file again.
  if (are_loaded) restrict_calls(needs, facts);
  if (is_host_code) serve_host_code(library_begin);
  meet_host_code(library_begin);
  for (;;) serve();
}
