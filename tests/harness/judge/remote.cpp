// Implements remote.hpp: calls with the memory of the host, each with what it did to that memory.
#include "harness/judge/remote.hpp"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "common/error.hpp"
#include "harness/judge/call.hpp"
#include "harness/judge/ended.hpp"
#include "harness/judge/process.hpp"

namespace flash::grading {
namespace {

constexpr std::size_t kNoise = 256 * 1024;  // what malloc may hold in reserve

double seconds_a_call() {
  const char* const given = getenv("FLASH_CALL_SECONDS");
  return given == nullptr ? 20 : std::max(0.1, atof(given));
}

// An endless loop is rarely alone: after these the rest is not run.
constexpr int kMostTimeouts = 3;

// The command that starts a runner, one word a line, from whoever starts the judge.
std::vector<std::string> runner_command() {
  const char* const given = getenv("FLASH_RUNNER");
  if (given == nullptr) throw std::logic_error("the judge: FLASH_RUNNER names no runner");
  std::vector<std::string> words;
  std::istringstream lines(given);
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  return words;
}

// Whether it runs kernels, and on what, says whoever starts the judge, too.
std::unique_ptr<Runner> new_runner(const Call& call) {
  const Kernels device = getenv("FLASH_ON_GPU") ? Kernels::kOnGpu : Kernels::kEmulated;
  return std::make_unique<Runner>(call.on_device ? device : Kernels::kNone, runner_command());
}

std::unique_ptr<Runner> the_runner;
bool memory_is_measured = false;
std::size_t last_measured = 0;

Message ask(Runner& runner, const Call& call, const Shared& memory, const Layout& layout,
            std::size_t* extra) {
  Message message = message_of(call, memory.bytes(), layout);
  const double seconds = seconds_a_call();
  runner.send(message, memory.fd());
  if (runner.receive(seconds).kind != Kind::kMapped) runner.lied();
  const auto before = extra ? runner.memory() : std::pair<std::size_t, std::size_t>();
  message = Message{};
  message.kind = Kind::kCall;
  runner.send(message);
  std::exception_ptr thrown;
  const auto deadline = SteadyClock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    const double left = std::chrono::duration<double>(deadline - SteadyClock::now()).count();
    const Message answer = runner.receive(std::max(left, 0.001));
    if (answer.kind == Kind::kCallback && call.on_callback && answer.function < kCallbacks) {
      Message result{};
      result.kind = Kind::kCallbackResult;
      thrown = nullptr;
      try {
        call.on_callback(answer, result);
      } catch (...) {
        thrown = std::current_exception();
        put_exception(result);
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
  // The second call finds other values where it has to write.
  put_arguments(call, layout, memory.data(), with_nan);
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
  if (!the_runner) the_runner = new_runner(call);
  return *the_runner;
}

}  // namespace

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
      // What an earlier call kept does not count as nothing.
      const auto fresh = new_runner(call);
      (void)run_once(*fresh, call, layout, true, &last_measured);
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

}  // namespace flash::grading
