// What the runner of each task defines: how its function is called.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "common/attention.hpp"
#include "common/clock.hpp"
#include "common/softmax_matmul.hpp"
#include "common/task.hpp"
#include "harness/judge/protocol.hpp"

namespace flash::grading {

void choose_library(std::uint32_t number);  // of the runner's, for a call
const std::string& library_of_call();
void is_in_library(const void* something);  // for lines of a crash

// The functions of a task, in the library that this call is for.
template <class Task>
const Task& functions_of() {
  const Task& functions = load_task<Task>(library_of_call());
  is_in_library(&functions);
  return functions;
}

// The tensors of a call, in the memory that the judge sent.
struct OnHost {
  const Message& call;
  void* memory;

  template <class T, int Rank>
  TensorView<T, Rank> view(int number) const {
    const Placed& placed = call.placed[number];
    Shape<Rank> shape, strides;
    std::copy_n(placed.shape, Rank, shape.begin());
    std::copy_n(placed.strides, Rank, strides.begin());
    return {reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(memory) + placed.offset), shape,
            strides};
  }
};

// The passes of a call; `on` has the views of its tensors.
template <class Views>
SoftmaxMatmul<float> softmax_matmul_pass(const Views& on) {
  return {on.template view<const float, 3>(0), on.template view<const float, 3>(1),
          on.template view<float, 3>(2)};
}
inline AttentionOptions options(const Message& call) {
  AttentionOptions made{.causal = call.numbers[0] != 0};
  if (call.numbers[1] != 0) made.scale = call.numbers[2];
  return made;
}
template <class T, class Views>
AttentionForward<T> forward_pass(const Message& call, const Views& on) {
  const auto input = [&](int n) { return on.template view<const T, 4>(n); };
  return {input(0),
          input(1),
          input(2),
          on.template view<T, 4>(3),
          on.template view<LseType<T>, 3>(4),
          options(call)};
}
template <class T, class Views>
AttentionBackward<T> backward_pass(const Message& call, const Views& on) {
  const auto input = [&](int n) { return on.template view<const T, 4>(n); };
  const auto output = [&](int n) { return on.template view<T, 4>(n); };
  return {input(0), input(1),  input(2),  input(3),  on.template view<const LseType<T>, 3>(4),
          input(5), output(6), output(7), output(8), options(call)};
}

// Messages, from and to the judge; of the process of host code, from and to the runner.
Message receive(int* fd = nullptr);
void send(const Message& message);
// What a process prints comes before its answer.
void answer_with(const Message& message);

// Asks the judge for something, as a callback; throws what the judge says that it throws.
Message ask_judge(Callback what, Message question = {});

// The judge's work and clock, for student code that measures; each task adds what is its own.
template <class TaskWork>
class JudgesWork : public TaskWork, public Clock {
 public:
  void prepare() override { ask_judge(kPrepare); }
  void reset_peak_memory() override { ask_judge(kResetPeakMemory); }
  std::size_t peak_memory_bytes() override {
    return static_cast<std::size_t>(ask_judge(kPeakMemoryBytes).numbers[0]);
  }
  void synchronize() override { ask_judge(kSynchronize); }
  double now_ms() override { return ask_judge(kNowMs).numbers[0]; }
};

// Runs one call, and puts what it returns into `done`. Each runner defines it. The memory is the
// host's, or where the judge said kMapDevice a device's.
void run(const Message& call, void* memory, Message& done);

// The functions of each part: false where the call is of none of them.
bool run_part1(const Message& call, void* memory, Message& done);
bool run_part2(const Message& call, void* memory, Message& done);
bool run_part3(const Message& call, void* memory, Message& done);
bool run_decode(const Message& call, void* memory, Message& done);

// ---- In host.cpp, emulator.cpp and gpu.cpp ------------------------------------------------------

// What a call costs that does nothing.
void run_nothing();

// Maps device memory that the judge made; without a descriptor it is that of the call before. Exits
// where this runner has no device.
void* mapped_on_device(int descriptor, std::size_t bytes);

// What the emulator has against the kernels of this call, "" elsewhere.
std::string finding();
// Whether races are all that it found: then the kernels have run, and there are results.
bool found_races_only();
void run_in_step(bool in_step);  // simt.hpp
// Bytes that kernels of the call wrote to memory that is none of its tensors, or read from outputs.
std::size_t workspace_bytes();

// Names the tensor in an allocation of device memory, for the emulator.
void name_memory(const void* first_element, const std::string& name, bool is_input);

// Says what the call is about, for the emulator's counts: "causal q=4x1x2x64x32 ...", with the
// bytes of an element in front.
void note_problem(const std::string& text);

// The emulator gives each call's tensors the addresses of the call before.
void reuse_addresses();

// Of the emulator's device memory, for several copies one after the other.
void let_host_access(bool allowed);

// Of a call of which only the launches are checked, by the emulator.
void skip_kernels(bool skipped);

// Where the exception that was thrown last comes from, the addresses behind the innermost calls: of
// a runner of tasks in C++.
std::vector<void*> thrown_from();

// What a runner needs of the kernel beyond what arithmetic does.
struct Needs {
  std::vector<unsigned> calls = {};
  // The addresses whose protection it changes, none where the first is larger.
  std::uintptr_t protects_from = 1, protects_to = 0;
};
// Called before the libraries are loaded, and before the kernel is told what this process may do;
// says what this runner is.
Needs prepared_for(const std::vector<std::string>& libraries, Facts& facts);

// In a class, host code of a CUDA task runs in a process of its own, which has neither the judge's
// socket nor the memory of the judge and of the device. All that it can do is ask the runner for
// what CUDA's functions do: it can forge no answer and no count. Whether this is now that process.
bool parts_from_host_code();
// When both have loaded the library.
[[noreturn]] void serve_host_code(std::uintptr_t library_begin);
void meet_host_code(std::uintptr_t library_begin);
// Student code of a call with its tensors on a device; `call` has their addresses as offsets, and
// the stream as bytes.
void call_host_code(const Message& call, Message& done);  // where it belongs
void run_host_code(const Message& call, Message& done);   // here; in cuda.cpp

// ---- In plain.cpp, and for a class in grading/sandboxed_runner.cpp ------------------------------

extern const bool kIsSandboxed;
void restrict_process(const Needs& needs, const Facts& facts);
void restrict_calls(const Needs& needs, const Facts& facts);  // when the libraries are loaded

}  // namespace flash::grading
