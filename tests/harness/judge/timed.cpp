// Implements timed.hpp, and the memory of the host.
#include "harness/judge/timed.hpp"

#include <signal.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "common/error.hpp"
#include "harness/judge/call.hpp"
#include "harness/judge/process.hpp"

namespace flash::grading {
namespace {

double ms_between(SteadyClock::time_point begin, SteadyClock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

// So that a call finds its inputs in memory, in no cache of any core.
void evict(unsigned char* memory, std::size_t bytes) {
#if defined(__x86_64__)
  constexpr std::size_t kLine = 64;
  for (std::size_t at = 0; at < bytes; at += kLine) _mm_clflush(memory + at);
  _mm_mfence();
#else
  (void)memory, (void)bytes;
  static std::vector<char> other(std::size_t{64} << 20);
  static char fill_with = 0;
  std::fill(other.begin(), other.end(), ++fill_with);
  asm volatile("" : : "r"(other.data()) : "memory");
#endif
}

// Fresh memory for each call.
class HostMemory final : public CallMemory {
 public:
  int make(std::size_t bytes) override {
    memory_ = std::make_unique<Shared>(bytes);
    fill(memory_->data(), memory_->bytes(), true);
    return memory_->fd();
  }
  std::size_t bytes() const override { return memory_->bytes(); }
  bool is_on_device() const override { return false; }

  double write(const Call& call, const Layout& layout) override {
    put_arguments(call, layout, memory_->data());
    expected_.assign(memory_->data(), memory_->data() + memory_->bytes());
    evict(memory_->data(), memory_->bytes());
    return 0;
  }

  void keep(const Call&, const Layout&) override {}

  bool read(const Call& call, const Layout& layout) override {
    for (std::size_t n = 0; n < call.arguments.size(); ++n) {
      const Argument& of = call.arguments[n];
      if (!of.output) continue;
      const unsigned char* const got = memory_->data() + layout.placed[n].offset;
      for_each_row(of, nullptr, [&](std::size_t at, std::size_t, std::size_t bytes) {
        memcpy(static_cast<unsigned char*>(of.data) + at, got + at, bytes);
        memcpy(expected_.data() + layout.placed[n].offset + at, got + at, bytes);
      });
    }
    return memcmp(expected_.data(), memory_->data(), memory_->bytes()) == 0;
  }

 private:
  std::unique_ptr<Shared> memory_;
  std::vector<unsigned char> expected_;
};

}  // namespace

std::unique_ptr<CallMemory> memory_of_host() { return std::make_unique<HostMemory>(); }

struct TimedRunner::Inside {
  std::unique_ptr<CallMemory> memory;
  Runner runner;
  double seconds;

  Inside(const std::vector<std::string>& command, double most, std::unique_ptr<CallMemory> of_calls)
      : memory(std::move(of_calls)), runner({.words = command}), seconds(most) {
    (void)runner.facts();
  }

  // Returns when the kernel has stopped the process, so that it does nothing from here on.
  void stop() {
    kill(runner.pid(), SIGSTOP);
    const auto deadline = SteadyClock::now() + std::chrono::seconds(5);
    while (SteadyClock::now() < deadline) {
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

TimedRunner::TimedRunner(std::vector<std::string> command, double seconds,
                         std::unique_ptr<CallMemory> memory)
    : inside_(std::make_unique<Inside>(command, seconds, std::move(memory))) {}
TimedRunner::~TimedRunner() = default;
TimedRunner::TimedRunner(TimedRunner&&) noexcept = default;

Timed TimedRunner::call(const Call& call) {
  Runner& runner = inside_->runner;
  CallMemory& memory = *inside_->memory;
  const Layout layout(call);
  const int fd = memory.make(layout.bytes);
  Message message = message_of(call, memory.bytes(), layout);
  if (memory.is_on_device()) {
    message.kind = Kind::kMapDevice;
    message.bytes = memory.bytes();
  }
  inside_->go_on();
  runner.send(message, fd);
  if (runner.receive(inside_->seconds).kind != Kind::kMapped) runner.lied();
  inside_->stop();

  Timed timed{.wait_ms = memory.write(call, layout)};
  message = Message{};
  message.kind = Kind::kCall;
  runner.send(message);  // it lies there until the process may run

  const double processor_before = inside_->processor_ms();
  const auto begin = SteadyClock::now();
  inside_->go_on();
  const Message answer = runner.receive(inside_->seconds);
  memory.keep(call, layout);
  const auto end = SteadyClock::now();
  inside_->stop();
  timed.wall_ms = ms_between(begin, end);
  timed.processor_ms = inside_->processor_ms() - processor_before;
  timed.extra_bytes = memory.is_on_device() ? answer.device_bytes : answer.bytes;
  if (answer.kind != Kind::kDone) runner.lied();
  if (answer.ended != Ended::kReturned) rethrow(answer, nullptr);
  if (!memory.read(call, layout))
    throw KernelError("It changes an input, or writes outside of its outputs.");
  return timed;
}

}  // namespace flash::grading
