// Calls a student's function in another process, as if it were here: the judge's side.
//
// The functions of a part's contract that the graded cases call are defined in the judge by files
// like remote_part1.cpp, in place of the student's library. So the cases are the harness' own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/attention.hpp"
#include "common/error.hpp"
#include "common/softmax_matmul.hpp"
#include "common/tensor.hpp"
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
  // The tensors are in device memory. The runner has the emulator, whose memory holds NaN until it
  // is written: one call finds out what two do on the host. And a kernel with atomic additions may
  // give other bits the second time, which only the case that asks for it forbids.
  bool on_device = false;
};

// Runs the call twice in the runner (on a device once), around and in the outputs different values
// each time. Throws KernelError with a text for the student when it wrote where it must not,
// changed an input, gave two results, crashed or took too long; and what the student's code threw.
// Returns the message kDone, of which `numbers` and `text` hold what the function returned.
Message remote_call(const Call& call);

// The same with tensors in the device memory of the judge (remote_device.cpp), which then tells how
// much memory the call took and what it moved.
void device_call(Call call);

// The options of a pass, as a call carries them.
inline std::vector<double> numbers_of(const AttentionOptions& options) {
  return {options.causal ? 1.0 : 0.0, options.scale ? 1.0 : 0.0, options.scale.value_or(0)};
}

// The call of a function with the tensors and the options of a pass.
inline Call call_of(Function function, const SoftmaxMatmul<float>& pass,
                    std::vector<std::int64_t> integers) {
  return {.function = function,
          .arguments = {argument("x", pass.x), argument("v", pass.v), argument("out", pass.out)},
          .integers = std::move(integers)};
}
template <class T>
Call call_of(Function function, const AttentionForward<T>& pass,
             std::vector<std::int64_t> integers) {
  return {.function = function,
          .arguments = {argument("q", pass.q), argument("k", pass.k), argument("v", pass.v),
                        argument("out", pass.out), argument("lse", pass.lse)},
          .integers = std::move(integers),
          .numbers = numbers_of(pass.options)};
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
          .numbers = numbers_of(pass.options)};
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

// measure_all(): the rows that the student's made of the configurations, which cannot leave the
// judge: the runner has one for each whose name is its number. A row is a message with its name on
// the first line of the text; `use` gets that name, and the message with the rest of the text.
template <class Configuration, class Use>
void remote_rows(const std::vector<Configuration>& configurations, Use use) {
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
  (void)remote_call({.function = kMeasureAll,
                     .integers = {static_cast<std::int64_t>(configurations.size())},
                     .on_callback = on_callback});
}

// Memory that must not be read: rows from `begin` on are left out of what the runner gets.
void hide_from_runner(const void* begin, const void* end);

// From now on each call is run once more, in a runner of its own, to see how much memory it takes;
// and that number: of the last call.
void measure_memory();
std::size_t measured_memory();

}  // namespace flash::grading
