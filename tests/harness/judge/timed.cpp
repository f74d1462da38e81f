// Implements timed.hpp, and the memory of the host.
#include "harness/judge/timed.hpp"

#include <signal.h>
#include <string.h>
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
    before_ = now();
    evict(memory_->data(), memory_->bytes());
    return 0;
  }

  void keep(const Call&, const Layout&) override {}

  std::string read(const Call& call, const Layout& layout) override {
    const std::vector<unsigned char> after = now();
    take_back(call, layout, after);
    return damage_of(call, layout, before_, after);
  }

 private:
  std::vector<unsigned char> now() const {
    return {memory_->data(), memory_->data() + memory_->bytes()};
  }

  std::unique_ptr<Shared> memory_;
  std::vector<unsigned char> before_;
};

}  // namespace

std::unique_ptr<CallMemory> memory_of_host() { return std::make_unique<HostMemory>(); }

TimedRunner::TimedRunner(std::vector<std::string> command, double seconds,
                         std::unique_ptr<CallMemory> memory)
    : memory_(std::move(memory)),
      runner_(std::make_unique<Runner>(Command{.words = std::move(command)})),
      seconds_(seconds) {
  (void)runner_->facts();
}

// Returns when the kernel has stopped the process, so that it does nothing from here on.
void TimedRunner::stop() {
  kill(runner_->pid(), SIGSTOP);
  const auto deadline = SteadyClock::now() + std::chrono::seconds(5);
  while (SteadyClock::now() < deadline) {
    std::ifstream stat("/proc/" + std::to_string(runner_->pid()) + "/stat");
    std::string text;
    std::getline(stat, text);
    const auto state = text.rfind(") ");  // behind the program's name, which may hold anything
    if (state == std::string::npos || text[state + 2] == 'Z') return;  // it ended: receive() says
    if (text[state + 2] == 'T') return;
  }
  throw std::logic_error("the judge: a runner's process cannot be stopped");
}

void TimedRunner::go_on() const { kill(runner_->pid(), SIGCONT); }

Timed TimedRunner::call(const Call& call) {
  const Layout layout(call);
  const int fd = memory_->make(layout.bytes);
  Message message = message_of(call, memory_->bytes(), layout);
  if (memory_->is_on_device()) {
    message.kind = Kind::kMapDevice;
    message.bytes = memory_->bytes();
  }
  go_on();
  runner_->send(message, fd);
  if (runner_->receive(seconds_).kind != Kind::kMapped) runner_->lied();
  stop();

  Timed timed{.wait_ms = memory_->write(call, layout)};
  message = Message{};
  message.kind = Kind::kCall;
  runner_->send(message);  // it lies there until the process may run

  const double waited_before = runner_->waited();
  const auto begin = SteadyClock::now();
  go_on();
  const Message answer = runner_->receive(seconds_);
  memory_->keep(call, layout);
  timed.wall_ms = ms_between(begin, SteadyClock::now());
  timed.processor_ms = timed.wall_ms - 1e3 * (runner_->waited() - waited_before);
  stop();
  timed.extra_bytes = memory_->is_on_device() ? answer.device_bytes : answer.bytes;
  if (answer.kind != Kind::kDone) runner_->lied();
  if (answer.ended != Ended::kReturned) rethrow(answer, nullptr);
  if (const std::string damage = memory_->read(call, layout); !damage.empty())
    throw KernelError(damage);
  return timed;
}

}  // namespace flash::grading
