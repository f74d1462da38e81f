// The cases in which an author's two passes of attention work together, the forward one being of
// another task. Its library is loaded, beside that of the task, as it was last built.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "harness/cases/attention_case.hpp"

namespace flash::harness {

// Calls the forward pass of the other task (`other_task` in tasks.toml): each judge of a part that
// has such a task defines it. Throws NoOtherTask where there is no such library.
void own_forward(const AttentionForward<float>& pass);

// An author's two passes of attention, the forward one being of another task.
struct OwnPasses {
  std::string forward_task;  // "2.A"
  std::function<void(const AttentionForward<float>&)> forward;
  std::function<void(const AttentionBackward<float>&)> backward;
  std::function<std::size_t()> bytes_in_use;
};

// The gradients from the out and lse that the forward pass leaves.
template <template <class, int> class Memory>
Verdict backward_after_forward(const OwnPasses& own, std::uint64_t seed) {
  for (const bool causal : {false, true}) {
    const AttentionCase problem{.shape = {1, 2, 70, 100, 64}, .causal = causal};
    ForwardCall<float, Memory> forward(problem, seed);
    own.forward(forward.tensors.pass());
    if (const Verdict verdict = forward.verdict(); !verdict.pass)
      return {false, "The forward pass of task " + own.forward_task + " is wrong: " + verdict.text};
    BackwardCall<float, Memory> backward(problem, seed);
    auto pass = backward.tensors.pass();
    pass.out = forward.tensors.out.in_call();
    pass.lse = forward.tensors.lse.in_call();
    own.backward(pass);
    if (const Verdict verdict = backward.verdict(); !verdict.pass) return verdict;
  }
  return {true, ""};
}

// What the forward pass keeps is memory of every layer until its backward pass, in training.
template <template <class, int> class Memory>
Verdict keeps_nothing_else(const OwnPasses& own, std::uint64_t seed) {
  if (const Verdict together = backward_after_forward<Memory>(own, seed); !together.pass)
    return together;
  const AttentionCase problem{.shape = {1, 2, 130, 130, 32}};
  ForwardCall<float, Memory> call(problem, seed);
  const std::size_t before = own.bytes_in_use();
  own.forward(call.tensors.pass());
  const std::size_t after = own.bytes_in_use();
  if (after <= before) return call.verdict();
  return {false, "The forward pass of task " + own.forward_task + " keeps " +
                     std::to_string(after - before) +
                     " bytes beside out and lse when it has returned. It must keep nothing; P of "
                     "all heads would be " +
                     std::to_string(4 * 2 * 130 * 130) + " bytes in float."};
}

template <template <class, int> class Memory>
void add_cases_of_own_passes(TaskUnderTest& task, const OwnPasses& own) {
  const std::string together = "after your forward pass";
  task.add("from the out and lse of your forward pass", together,
           [own](auto seed) { return backward_after_forward<Memory>(own, seed); });
  task.add("your forward pass keeps out and lse only", together,
           [own](auto seed) { return keeps_nothing_else<Memory>(own, seed); });
}

}  // namespace flash::harness
