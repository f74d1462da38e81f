// Implements remote.hpp: calls with the memory of the host, each with what it did to that memory,
// and the runners that they go to.
#include "harness/judge/remote.hpp"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>

#include "common/error.hpp"
#include "harness/cases/surroundings.hpp"
#include "harness/judge/call.hpp"
#include "harness/judge/ended.hpp"
#include "harness/judge/process.hpp"
#include "harness/judge/where.hpp"

namespace flash::grading {
namespace {

constexpr std::size_t kNoise = 256 * 1024;  // what malloc may hold in reserve
constexpr double kSecondsToLook = 2;  // after which a call that is where one hung is not waited for
constexpr int kMostTimeouts = 2;      // then the rest is not run

// Seconds that a call may take, at least four times what the slowest of a solution does.
double usual_seconds(const Facts& facts) {
  return facts.backend == "gpu" ? 20 : facts.counts_accesses() ? 10 : 8;
}

std::int64_t all_kept = 0;  // by the calls of the current runner

// The runners of the library.
class Pool {
 public:
  explicit Pool(const Given& of) : given(of) {}

  Runner& current() {
    if (!current_) current_ = next();
    return *current_;
  }
  std::unique_ptr<Runner> next() {
    if (!spare_) start_spare();
    auto runner = std::move(spare_);
    (void)runner->facts();
    return runner;
  }
  // On a GPU a new process is waited for a third of a second.
  void renew() {
    if (current_ &&
        (!current_->was_used() || given.command.is_attended || current_->facts().backend == "gpu"))
      return;
    drop();
    current_ = next();
    if (!given.command.is_attended) start_spare();
  }
  void drop() {
    current_.reset();
    all_kept = 0;
  }
  bool has_current() const { return current_ != nullptr; }

  const Given given;

 private:
  void start_spare() { spare_ = std::make_unique<Runner>(given.command); }

  std::unique_ptr<Runner> current_, spare_;
};

std::unique_ptr<Pool> pool;

// Of this case.
std::string complained, printed;
bool is_diagnosis = false;

// Of the run.
int timeouts = 0;
std::optional<Spot> hung_at;

Message answered;                    // of the last call
std::optional<std::size_t> touched;  // of what is hidden from the runner
bool memory_is_measured = false, is_in_step = false, has_raced = false;
std::size_t last_measured = 0;
void refuse_after_timeouts() {
  if (timeouts >= kMostTimeouts)
    throw RunnerEnded(RunnerEnded::How::kNotRun, "Not run, because calls before it took too long.");
}

std::optional<Spot> spot_of(Runner& runner) {
  // The debug information of a file that may be hostile is not read by this process.
  if (runner.facts().is_sandboxed || runner.where().empty()) return std::nullopt;
  return spot_of(pool->given.library, runner.where(), runner.busiest_thread());
}

// How long a call has taken: by the clock, without the time that the runner waited for a processor
// while other programs had it.
class Stopwatch {
 public:
  explicit Stopwatch(const Runner& runner) : runner_(runner), waited_(runner.waited()) {}
  double seconds() const {
    return std::chrono::duration<double>(SteadyClock::now() - begin_).count() -
           (runner_.waited() - waited_);
  }

 private:
  const Runner& runner_;
  double waited_;
  SteadyClock::time_point begin_ = SteadyClock::now();
};

// An answer that comes before the call has taken `seconds`.
std::optional<Message> answer_within(Runner& runner, const Stopwatch& taken, double seconds) {
  for (double left; (left = seconds - taken.seconds()) > 0;)
    if (auto answer = runner.receive_within(left)) return answer;
  return std::nullopt;
}

Message wait_for(Runner& runner, const Stopwatch& taken, double seconds) {
  if (pool->given.command.is_attended) seconds = 1e9;
  if (hung_at && kSecondsToLook < seconds && taken.seconds() < kSecondsToLook) {
    if (const auto answer = answer_within(runner, taken, kSecondsToLook)) return *answer;
    runner.ask_where();
    if (const auto spot = spot_of(runner); spot && spot->is_same(*hung_at)) {
      timeouts = kMostTimeouts;
      runner.end_because_of_time(kSecondsToLook,
                                 "where the case before it hung, " + to_string(*spot));
    }
  }
  if (const auto answer = answer_within(runner, taken, seconds)) return *answer;
  if (!is_diagnosis) ++timeouts;
  if (!runner.facts().is_sandboxed) runner.ask_where();
  const auto spot = spot_of(runner);
  if (spot) hung_at = spot;
  runner.end_because_of_time(seconds,
                             spot ? to_string(*spot) +
                                        "\nA loop around these lines does not end, or takes far "
                                        "too long."
                                  : "");
  throw std::logic_error("the judge: a runner outlived its time");
}

double seconds_a_call(Runner& runner) {
  return pool->given.seconds > 0 ? pool->given.seconds : usual_seconds(runner.facts());
}

void complain(const std::string& text) {
  if (complained.empty()) complained = text;
}

bool has_races_only(const Message& done) {
  return done.ended == Ended::kKernelError && done.numbers[0] == 1;
}

Message ask(Runner& runner, const Call& call, const Shared& memory, const Layout& layout,
            std::size_t* extra) {
  Message message = message_of(call, memory.bytes(), layout);
  message.kept = is_in_step;
  const double seconds = seconds_a_call(runner);
  answered = Message{};
  const Stopwatch taken(runner);
  runner.send(message, memory.fd());
  if (wait_for(runner, taken, seconds).kind != Kind::kMapped) runner.lied();
  const bool asks_kernel = extra != nullptr && !runner.facts().is_sanitized;
  const auto before = asks_kernel ? runner.memory() : std::nullopt;
  message = Message{};
  message.kind = Kind::kCall;
  runner.send(message);
  std::exception_ptr thrown;
  for (;;) {
    const Message answer = wait_for(runner, taken, seconds);
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
      // It waits for the answer, unless another thread asks.
      if (answer.function == kConfiguration && runner.says_something_within(2))
        complain(
            "measure_all() runs a configuration while another one is under way. They take "
            "each other's time and memory: run one after the other.");
      runner.send(result);
      continue;
    }
    if (answer.kind != Kind::kDone) runner.lied();
    answered = answer;
    has_raced |= call.on_device && has_races_only(answer);
    if (extra) {
      *extra = answer.bytes;  // by their meter, which is exact, and which student code can reach
      auto after = before ? runner.memory() : std::nullopt;
      const auto& without_library = runner.memory_before();
      if (after)
        for (const auto& [file, bytes] : before->files)
          if (!file.empty() && after->files[file] < bytes)
            complain("It unmaps memory that is not its own, to make room for what is.");
      if (after && without_library) {  // the kernel's is neither; the library's own memory counts
        const std::size_t by_kernel = after->peak - std::max(before->size, without_library->peak) +
                                      std::max(before->writable, without_library->writable) -
                                      without_library->writable;
        if (by_kernel > *extra + kNoise) *extra = by_kernel;
      }
    }
    if (answer.ended == Ended::kOther && thrown == nullptr)
      if (const auto spot = spot_of(runner)) throw Error(answer.text + (" " + to_string(*spot)));
    if (answer.ended != Ended::kReturned && !(call.on_device && has_races_only(answer)))
      rethrow(answer, thrown);
    return answer;
  }
}

struct Outcome {
  Message answer;
  std::vector<unsigned char> memory;  // a copy: the runner may still change what it shares
};

Outcome run_once(Runner& runner, const Call& call, const Layout& layout, bool with_nan,
                 std::size_t* extra = nullptr) {
  const Shared memory(layout.bytes);
  fill(memory.data(), memory.bytes(), with_nan);
  // The second call finds other values where it has to write.
  put_arguments(call, layout, memory.data(), with_nan);
  const std::vector<unsigned char> before(memory.data(), memory.data() + memory.bytes());
  const Message answer = ask(runner, call, memory, layout, extra);
  std::vector<unsigned char> after(memory.data(), memory.data() + memory.bytes());
  complain(damage_of(call, layout, before, after));
  return {answer, std::move(after)};
}

// Whether the elements of an output are the same after two calls, but for those that hold what they
// held before.
bool same_results(const Argument& of, const Layout& layout, std::size_t n, const Outcome& first,
                  const Outcome& second) {
  bool same = true;
  const auto* const held = static_cast<const unsigned char*>(of.data);
  for_each_row(of, layout.strides[n].data(),
               [&](std::size_t from, std::size_t at, std::size_t bytes) {
                 const unsigned char* const one = &first.memory[layout.placed[n].offset + at];
                 const unsigned char* const two = &second.memory[layout.placed[n].offset + at];
                 if (!same || memcmp(one, two, bytes) == 0) return;
                 for (std::size_t k = 0; k < bytes; k += of.element)
                   same &= memcmp(one + k, two + k, of.element) == 0 ||
                           memcmp(held + from + k, one + k, of.element) == 0;
               });
  return same;
}

// At which byte of a tensor that is partly hidden the runner crashed.
std::optional<std::size_t> hidden_byte(const Call& call, const Layout& layout,
                                       const std::vector<Where>& where) {
  for (std::size_t n = 0; n < call.arguments.size(); ++n) {
    const std::size_t span = span_of(call.arguments[n]);
    if (layout.apart != 0 || static_cast<int>(n) != layout.hidden || where.empty()) continue;
    const std::uint64_t at = where.back().fault - where.back().memory - layout.placed[n].offset;
    if (at >= layout.there[n] && at < std::max(span, layout.there[n] + kBehind)) return at;
  }
  return std::nullopt;
}

// The input next to which the runner crashed: inputs are read only.
std::string changed_input(const Call& call, const Layout& layout, const std::vector<Where>& where) {
  if (where.empty() || where.back().fault - where.back().memory >= layout.read_only) return "";
  const std::uint64_t at = where.back().fault - where.back().memory;
  std::string name;
  for (std::size_t n = 0; n < call.arguments.size() && layout.placed[n].offset < layout.read_only;
       ++n)
    if (name.empty() || layout.placed[n].offset <= at + sizeof(double))
      name = call.arguments[n].name;
  return name;
}

}  // namespace

void measure_memory() { memory_is_measured = true; }
std::size_t measured_memory() {
  memory_is_measured = false;
  return last_measured;
}
std::int64_t kept_memory() { return all_kept; }
bool has_race_in_case() { return has_raced; }
void run_in_step() { is_in_step = true; }
bool only_races_were_found() { return has_races_only(answered); }

void start_runners(const Given& given) { pool = std::make_unique<Pool>(given); }

void begin_case() {
  if (hides_from_runner()) throw std::logic_error("the judge: a case left memory hidden");
  refuse_after_timeouts();
  complained.clear();
  printed.clear();
  touched.reset();
  is_diagnosis = is_in_step = has_raced = false;
  pool->renew();
}

std::optional<std::size_t> hidden_byte_touched() { return touched; }

std::string complaint() { return complained; }

std::string take_output() {
  if (pool->has_current()) printed += pool->current().take_output();
  return std::exchange(printed, "");
}

void calls_are_for_a_diagnosis() { is_diagnosis = true; }

const Message& last_answer() { return answered; }

const Facts& facts() { return pool->current().facts(); }

void end_runners() { pool.reset(); }

Message remote_call(const Call& call) {
  refuse_after_timeouts();
  std::unique_ptr<Runner> fresh;
  Runner* runner = &pool->current();
  const Layout layout(call);
  try {
    std::optional<Outcome> measured;
    if (memory_is_measured) {
      // What an earlier call kept does not count as nothing.
      fresh = pool->next();
      runner = fresh.get();
      measured = run_once(*fresh, call, layout, true, &last_measured);
      runner = &pool->current();
    }
    const Outcome first = run_once(*runner, call, layout, true);
    all_kept += first.answer.kept;
    if (call.arguments.empty()) return first.answer;
    if (!call.on_device && !is_diagnosis && !pool->given.command.is_attended) {
      const Outcome second = run_once(*runner, call, layout, false);
      const auto is_same = [&](std::size_t n, const Outcome& other) {
        return same_results(call.arguments[n], layout, n, first, other);
      };
      for (std::size_t n = 0; n < call.arguments.size(); ++n)
        if (call.arguments[n].output &&
            !(is_same(n, second) && (!measured || is_same(n, *measured))))
          complain("Two calls with the same inputs give two results in `" +
                   std::string(call.arguments[n].name) +
                   "`: it uses memory that nobody wrote, or what an earlier call left.");
    }
    take_back(call, layout, first.memory);
    if (first.answer.ended != Ended::kReturned) rethrow(first.answer, nullptr);
    return first.answer;
  } catch (const RunnerEnded& ended) {
    std::string text = ended.what();
    if (const std::string input = changed_input(call, layout, runner->where()); !input.empty())
      text = "It changes `" + input + "`, or writes around it. Inputs must stay as they are.";
    if (ended.how == RunnerEnded::How::kCrashed)
      if (const auto spot = spot_of(*runner)) {
        // Behind the signal, before the words of the C library.
        const auto line = text.find('\n');
        text.insert(line == std::string::npos ? text.size() : line, " " + to_string(*spot));
      }
    touched = hidden_byte(call, layout, runner->where());
    printed += runner->take_output();
    pool->drop();  // the next call gets a new one
    throw RunnerEnded(ended.how, text);
  }
}

}  // namespace flash::grading
