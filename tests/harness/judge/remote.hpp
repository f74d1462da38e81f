// Calls a student's function in another process, as if it were here: the judge's side.
//
// The functions of a part's contract that the graded cases call are defined in the judge by files
// like remote_part1.cpp, in place of the student's library. So the cases are the harness' own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/attention.hpp"
#include "common/error.hpp"
#include "common/softmax_matmul.hpp"
#include "common/tensor.hpp"
#include "harness/judge/process.hpp"
#include "harness/judge/protocol.hpp"

namespace flash::grading {

// A tensor of a call: an input is copied to the runner, an output also back.
struct Argument {
  const char* name;
  void* data;
  std::size_t element;  // bytes
  std::int64_t shape[4] = {1, 1, 1, 1}, strides[4] = {};
  bool output;
};

template <class T, int Rank>
Argument argument(const char* name, const TensorView<T, Rank>& view) {
  Argument made{.name = name,
                .data = const_cast<std::remove_const_t<T>*>(view.data()),
                .element = sizeof(T),
                .output = !std::is_const_v<T>};
  for (int axis = 0; axis < Rank; ++axis) {
    made.shape[axis] = view.extent(axis);
    made.strides[axis] = view.stride(axis);
  }
  return made;
}

struct Call {
  Function function;
  std::vector<Argument> arguments = {};
  std::vector<std::int64_t> integers = {};
  std::vector<double> numbers = {};
  // Of a task that takes interfaces: does what the runner asks for; may throw.
  std::function<void(const Message& question, Message& result)> on_callback = nullptr;
  // The tensors are in device memory. Such a call is made once: memory of the emulator holds NaN
  // until it is written, which shows what the host needs two calls for. And a kernel with atomic
  // additions may give other bits the second time; only one case forbids that.
  bool on_device = false;
  OnStream stream = OnStream::kDefault;
  Kernels kernels = Kernels::kRun;
  std::uint32_t library = 0;  // 1: that of another task of the same author
};

// Runs the call twice in the runner (on a device once), each time with other values around and in
// the outputs; the case finds what the first call left. Throws RunnerEnded if the process crashed
// or took too long, and rethrows what the student's code threw. Returns the message kDone, in which
// `numbers` and `text` hold what the function returned.
Message remote_call(const Call& call);

// What the runner answered last, also where that became an exception.
const Message& last_answer();

// The same with tensors in the device memory of the judge (remote_device.cpp), which then tells how
// much memory the call took and what it moved.
Message device_call(Call call);

// ---- A run of cases (graded_main.cpp) -----------------------------------------------------------

// How a library is run: the command of its runner, and where the judge finds the library, to name
// lines of it.
struct Given {
  Command command;
  std::string library;
  double seconds = 0;  // that a call may take; 0: as long as is usual for the runner
};

// Calls go to runners of this library.
void start_runners(const Given& given);

// From now on calls go to a new runner; on a GPU the same runner goes on.
void begin_case();

// What the judge found wrong in the calls of this case, beside what the case itself found: a call
// wrote where it must not, changed an input, or gave two results. "" if nothing is wrong.
std::string complaint();

// What the code printed in this case.
std::string take_output();

// From now on a call is made once: only its results count, not what else it does.
void calls_are_for_a_diagnosis();

// Of the runner of this case.
const Facts& facts();

// Ends all runners.
void end_runners();

// The streams that cases ask for: see OnStream.
inline char own_stream = 0, busy_stream = 0;
inline OnStream stream_of(Stream stream) {
  return stream.handle == &own_stream    ? OnStream::kOwn
         : stream.handle == &busy_stream ? OnStream::kBusy
                                         : OnStream::kDefault;
}

// The options of a pass, as a call carries them.
inline std::vector<double> numbers_of(const AttentionOptions& options) {
  return {options.causal ? 1.0 : 0.0, options.scale ? 1.0 : 0.0, options.scale.value_or(0)};
}

// The call of a function with the tensors and the options of a pass.
inline Call call_of(Function function, const SoftmaxMatmul<float>& pass,
                    std::vector<std::int64_t> integers) {
  return {.function = function,
          .arguments = {argument("x", pass.x), argument("v", pass.v), argument("out", pass.out)},
          .integers = std::move(integers),
          .stream = stream_of(pass.stream)};
}
template <class T>
Call call_of(Function function, const AttentionForward<T>& pass,
             std::vector<std::int64_t> integers) {
  return {.function = function,
          .arguments = {argument("q", pass.q), argument("k", pass.k), argument("v", pass.v),
                        argument("out", pass.out), argument("lse", pass.lse)},
          .integers = std::move(integers),
          .numbers = numbers_of(pass.options),
          .stream = stream_of(pass.stream)};
}
template <class T>
Call call_of(Function function, const AttentionBackward<T>& pass,
             std::vector<std::int64_t> integers = {}) {
  return {.function = function,
          .arguments = {argument("q", pass.q), argument("k", pass.k), argument("v", pass.v),
                        argument("out", pass.out), argument("lse", pass.lse),
                        argument("d_out", pass.d_out), argument("d_q", pass.d_q),
                        argument("d_k", pass.d_k), argument("d_v", pass.d_v)},
          .integers = std::move(integers),
          .numbers = numbers_of(pass.options),
          .stream = stream_of(pass.stream)};
}

// What every task that measures asks of its work and of the clock.
template <class Work, class Clock>
void answer(const Message& question, Message& result, Work& work, Clock& clock) {
  switch (question.function) {
    case kResetPeakMemory: work.reset_peak_memory(); break;
    case kPeakMemoryBytes: result.numbers[0] = static_cast<double>(work.peak_memory_bytes()); break;
    case kSynchronize: clock.synchronize(); break;
    case kNowMs: result.numbers[0] = clock.now_ms(); break;
    default: break;
  }
}

// The rows that the student's measure_all() makes. Configurations cannot leave the judge: in their
// place the runner has some that are named by their numbers. A row is a message with its name on
// the first line of the text; `use` gets that name, and the message with the rest of the text.
template <class Configuration, class Use>
void remote_rows(Function measure_all, const std::vector<Configuration>& configurations, Use use) {
  std::size_t rows = 0;
  const auto on_callback = [&](const Message& question, Message& result) {
    if (question.function == kRow) {
      if (++rows > 2 * configurations.size()) throw Error("measure_all() returns too many rows");
      Message row = question;
      std::string name = first_line(row);
      for (std::size_t i = 0; i < configurations.size(); ++i)
        if (name == std::to_string(i)) return use(configurations[i].name, row);
      use(name, row);
    } else if (question.function == kConfiguration) {
      const auto which = static_cast<std::size_t>(question.integers[0]);
      if (which >= configurations.size()) throw Error("there is no such configuration");
      put(result, configurations[which].run());
    }
  };
  (void)remote_call({.function = measure_all,
                     .integers = {static_cast<std::int64_t>(configurations.size())},
                     .on_callback = on_callback});
}

// Memory that must not be read: the runner does not get the bytes from `begin` on. The second tells
// at which of them it crashed, counted from the first byte of the tensor that they belong to.
void hide_from_runner(const void* begin, const void* end);
bool hides_from_runner();
std::optional<std::size_t> hidden_byte_touched();

// From now on each call is run once more, in a runner of its own, to see how much memory it takes.
// The other two: how much the last call took, and how much the calls of this runner have kept.
void measure_memory();
std::size_t measured_memory();
std::int64_t kept_memory();
// Of the last call, which threw a KernelError: races were all that was found, and its results are
// there.
bool only_races_were_found();
// Whether they were in a call of this case. From now on until its end threads go on in step.
bool has_race_in_case();
void run_in_step();

}  // namespace flash::grading
