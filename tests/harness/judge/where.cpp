// Implements where.hpp on Linux, and as nothing elsewhere.
#include "harness/judge/where.hpp"

#include "harness/cases/graded_case.hpp"

#if defined(__linux__) && __has_include(<execinfo.h>)
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace flash::harness {
namespace {

int report_file = -1;

std::uintptr_t program_counter(const void* context) {
  [[maybe_unused]] const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return machine.pc;
#else
  return 0;
#endif
}

// A line of text without memory from the heap, which may be what is broken.
struct Line {
  char text[2048];
  std::size_t length = 0;

  void add(const char* words) {
    const std::size_t more = std::strlen(words);
    if (length + more > sizeof text) return;
    std::memcpy(text + length, words, more);
    length += more;
  }
  void add(std::uintptr_t number) {
    char digits[21] = {};
    int at = 20;
    do digits[--at] = static_cast<char>('0' + number % 10);
    while (number /= 10);
    add(digits + at);
  }
};

void write_place(const void* context) {
  void* calls[64];
  const int count = backtrace(calls, 64);
  const std::uintptr_t pc = program_counter(context);
  int first = 0;  // the signal handler's own calls come before the interrupted instruction
  while (first < count && reinterpret_cast<std::uintptr_t>(calls[first]) != pc) ++first;
  Line line;
  line.add("{\"event\":\"where\",\"thread\":");
  line.add(static_cast<std::uintptr_t>(syscall(SYS_gettid)));
  line.add(",\"addresses\":[");
  line.add(pc + 1);
  for (int i = first + 1; i < count; ++i) {
    line.add(",");
    line.add(reinterpret_cast<std::uintptr_t>(calls[i]));
  }
  line.add("]}\n");
  [[maybe_unused]] const ssize_t written = write(report_file, line.text, line.length);
}

void on_question(int, siginfo_t*, void* context) { write_place(context); }

void on_crash(int signal, siginfo_t*, void* context) {
  write_place(context);
  ::signal(signal, SIG_DFL);
  raise(signal);  // it comes when this function has returned
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

// The libraries of the implementation under test: other code is not asked about.
int write_library(dl_phdr_info* info, std::size_t, void*) {
  if (std::strstr(info->dlpi_name, (std::string("_") + implementation()).c_str()) == nullptr)
    return 0;
  const std::string line = std::string("{\"event\":\"library\",\"path\":\"") + info->dlpi_name +
                           "\",\"base\":" + std::to_string(info->dlpi_addr) + "}\n";
  [[maybe_unused]] const ssize_t written = write(report_file, line.data(), line.size());
  return 0;
}

}  // namespace

void report_places_to(const std::string& report) {
  if (report.empty()) return;
  report_file = open(report.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (report_file < 0) return;
  void* call;
  backtrace(&call, 1);  // the first call loads a library
  dl_iterate_phdr(write_library, nullptr);
  handle(SIGUSR2, on_question);
}

void report_crashes() {
  if (report_file < 0 || dlsym(RTLD_DEFAULT, "__asan_init") != nullptr) return;  // it says more
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) handle(signal, on_crash);
}

}  // namespace flash::harness

#else

namespace flash::harness {
void report_places_to(const std::string&) {}
void report_crashes() {}
}  // namespace flash::harness

#endif
